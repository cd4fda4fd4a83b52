"""The frame: the unit of a pack. Header codec and kinds, byte by byte as in docs/pack-format.md."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from google_crc32c import value as crc32c

from archiver.store import stream
from archiver.store.errors import Damage, Spot, UnknownVersion
from archiver.store.keys import TAG_BYTES, PackKey

MAGIC = b"\xf6AF\x1e"
VERSION = 1
FLAG_RECIPE = 0x01
"""The content is a recipe (archiver.store.recipe); the SHA-256 is that of the message which it gives."""

_FRONT = struct.Struct("<4sBBBB4sIQ16s16s")  # everything that is known before the payload; it is authenticated with it
_REST = struct.Struct("<QI")  # payload length and CRC, patched in after a payload that was streamed
_CRC = struct.Struct("<I")
FRONT_BYTES = _FRONT.size
HEADER_BYTES = FRONT_BYTES + _REST.size + _CRC.size
SHA_BYTES = 32
SALT_BYTES = 16


class FrameKind(IntEnum):
    MESSAGE = 1
    PART = 2
    OCCURRENCE = 3
    COPY_CHANGE = 4
    TOMBSTONE = 5
    TEXT = 6
    DICTIONARY = 7
    CONFIG = 8
    KEY_CHECK = 9
    INDEX = 10
    TOMBSTONE_CONFIRMED = 11
    AUDIT_ANCHOR = 12
    MESSAGE_LABELS = 13

    @property
    def label(self) -> str:
        """The name in `objects.kind`."""
        return _LABELS[self]


_LABELS = {kind: kind.name.lower().replace("_", "-") for kind in FrameKind}


class Codec(IntEnum):
    STORED = 0
    ZSTD = 1


class Header(NamedTuple):
    """One is made for each frame that is read, hence a tuple: it is made in a fifth of the time."""

    kind: int
    codec: int
    flags: int
    fingerprint: bytes
    dictionary_id: int
    content_length: int
    """Bytes after decompression."""
    tag: bytes
    salt: bytes
    payload_length: int = 0
    payload_crc: int = 0

    @property
    def frame_length(self) -> int:
        return HEADER_BYTES + self.payload_length

    def front(self) -> bytes:
        return _FRONT.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.codec,
            self.flags,
            self.fingerprint,
            self.dictionary_id,
            self.content_length,
            self.tag,
            self.salt,
        )

    def encode(self) -> bytes:
        return finish_header(self.front(), self.payload_length, self.payload_crc)


def finish_header(front: bytes, payload_length: int, payload_crc: int) -> bytes:
    head = front + _REST.pack(payload_length, payload_crc)
    return head + _CRC.pack(crc32c(head))


def decode_header(data: bytes, spot: Spot) -> Header:
    """Raises Damage for an invalid header, and UnknownVersion for a valid one of another version."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise Damage(spot, "no frame begins here")
    if _CRC.unpack_from(data, HEADER_BYTES - _CRC.size)[0] != crc32c(data[: HEADER_BYTES - _CRC.size]):
        raise Damage(spot, "the header's checksum is wrong")
    _, version, kind, codec, flags, fingerprint, dictionary_id, content_length, tag, salt = _FRONT.unpack_from(data)
    if version != VERSION:
        raise UnknownVersion(f"{spot}: frame of version {version}; this program reads version {VERSION}: use a newer one")
    payload_length, payload_crc = _REST.unpack_from(data, FRONT_BYTES)
    return Header(kind, codec, flags, fingerprint, dictionary_id, content_length, tag, salt, payload_length, payload_crc)


def new_salts(count: int) -> Iterator[bytes]:
    """Drawn at once, for the frames of one batch. No two frames may share one: key and nonce of a frame are made from it."""
    drawn = os.urandom(SALT_BYTES * count)
    return (drawn[at : at + SALT_BYTES] for at in range(0, len(drawn), SALT_BYTES))


def new_front(
    key: PackKey, kind: FrameKind, codec: Codec, flags: int, dictionary_id: int, content_length: int, sha256: bytes, salt: bytes
) -> bytes:
    """As `Header.front`, without the header: that is made for frames that are read."""
    tag = key.content_tag(sha256)
    return _FRONT.pack(MAGIC, VERSION, kind, codec, flags, key.fingerprint, dictionary_id, content_length, tag, salt)


def seal_frame(key: PackKey, front: bytes, salt: bytes, sha256: bytes, body: bytes) -> bytes:
    """A whole frame in memory: the SHA-256 and the (compressed) body are encrypted together."""
    payload = stream.seal(key.frame_key(salt), salt[: stream.PREFIX_BYTES], front, sha256 + body)
    return finish_header(front, len(payload), crc32c(payload)) + payload


def open_frame(key: PackKey, header: Header, payload: bytes, spot: Spot) -> tuple[bytes, memoryview]:
    """The SHA-256 of the content and the body, checked."""
    if crc32c(payload) != header.payload_crc:
        raise Damage(spot, "the payload's checksum is wrong")
    try:
        plain = stream.open_sealed(key.frame_key(header.salt), header.salt[: stream.PREFIX_BYTES], header.front(), payload)
    except stream.Tampered:
        raise Damage(spot, "the payload can't be decrypted: it was changed, or encrypted with another key") from None
    if len(plain) < SHA_BYTES:
        raise Damage(spot, "the payload is too short")
    return plain[:SHA_BYTES], memoryview(plain)[SHA_BYTES:]


assert TAG_BYTES == 16
