"""S/MIME containers (RFC 8551, RFC 5652): their kind, and the content of signed and compressed ones."""

import zlib
from enum import StrEnum

from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects

_SIGNED = bytes.fromhex("06092a864886f70d010702")
_ENVELOPED = bytes.fromhex("06092a864886f70d010703")
_AUTH_ENVELOPED = bytes.fromhex("060b2a864886f70d0109100117")
_COMPRESSED = bytes.fromhex("060b2a864886f70d0109100109")
_DATA = bytes.fromhex("06092a864886f70d010701")
_LOOKED_AT = 4096
_CHUNKS = 200_000
_PIECE_BYTES = 4 << 20


class SmimeKind(StrEnum):
    SIGNED = "signed"
    ENCRYPTED = "encrypted"
    COMPRESSED = "compressed"
    UNKNOWN = "unknown"


def smime_kind(content: bytes) -> SmimeKind:
    head = content[:64]
    if _SIGNED in head:
        return SmimeKind.SIGNED
    if _ENVELOPED in head or _AUTH_ENVELOPED in head:
        return SmimeKind.ENCRYPTED
    return SmimeKind.COMPRESSED if _COMPRESSED in head else SmimeKind.UNKNOWN


def smime_content(content: bytes, budget: DecodeBudget, defects: Defects) -> bytes | None:
    """The MIME entity inside a signed or compressed container; signatures are not verified here. None if it exceeds the
    budget."""
    kind = smime_kind(content)
    if kind not in (SmimeKind.SIGNED, SmimeKind.COMPRESSED):
        return None
    # encapContentInfo: the object id of plain data, then [0] EXPLICIT OCTET STRING
    at = content.find(_DATA, 0, _LOOKED_AT)
    if at < 0:
        return None
    at += len(_DATA)
    if content[at : at + 1] != b"\xa0":
        return None
    octets = _octets(content, _inside(content, at))
    if octets is not None and kind is SmimeKind.COMPRESSED:
        octets = _inflate(octets, budget, defects)
    return octets if octets is not None and budget.take(len(octets), defects) else None


def _inflate(octets: bytes, budget: DecodeBudget, defects: Defects) -> bytes | None:
    decoder, pieces = zlib.decompressobj(), []
    try:
        while octets and not decoder.eof:
            if budget.inflatable == 0:
                defects.add("decodes_to_too_much")
                return None
            pieces.append(decoder.decompress(octets, min(_PIECE_BYTES, budget.inflatable)))
            budget.inflated += len(pieces[-1])
            octets = decoder.unconsumed_tail
    except zlib.error:
        return None
    return b"".join(pieces)


def _inside(data: bytes, at: int) -> int:
    """The offset of the content of the element at `at`."""
    first = data[at + 1] if at + 1 < len(data) else 0
    return at + 2 + (first & 0x7F if first > 0x80 else 0)


def _length(data: bytes, at: int) -> int | None:
    """The length of the content, or None if it is indefinite."""
    first = data[at + 1] if at + 1 < len(data) else 0
    if first < 0x80:
        return first
    return int.from_bytes(data[at + 2 : at + 2 + (first & 0x7F)], "big") if first > 0x80 else None


def _octets(data: bytes, at: int) -> bytes | None:
    """An OCTET STRING, primitive or (in BER) in pieces."""
    tag = data[at : at + 1]
    length = _length(data, at)
    start = _inside(data, at)
    if tag == b"\x04" and length is not None:
        return data[start : start + length]
    if tag != b"\x24":
        return None
    end = len(data) if length is None else min(len(data), start + length)
    pieces: list[bytes] = []
    while start < end and data[start : start + 1] == b"\x04" and len(pieces) < _CHUNKS:
        piece_length = _length(data, start)
        if piece_length is None:
            break
        inside = _inside(data, start)
        pieces.append(data[inside : inside + piece_length])
        start = inside + piece_length
    return b"".join(pieces) if pieces else None
