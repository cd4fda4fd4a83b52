"""The pack file: its header, its seal, and walking over its frames, across damage too."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from typing import NamedTuple
from uuid import UUID

from google_crc32c import extend
from google_crc32c import value as crc32c

from archiver.store.errors import Damage, Spot, UnknownVersion
from archiver.store.frames import HEADER_BYTES, MAGIC, FrameKind, Header, decode_header
from archiver.store.keys import PackKey

PACK_MAGIC = b"ARCHPACK"
PACK_VERSION = 1
PACK_LIMIT_BYTES = 256 << 20
SEAL_MAGIC = b"ARCHSEAL"
KEYED_SEAL_MAGIC = b"ARCHSEAK"

_HEAD = struct.Struct("<8sHH16sQ4s32sI")
_SEAL_FRONT = struct.Struct("<8sQQ")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<BQQ16s")
PACK_HEADER_BYTES = _HEAD.size + _CRC.size
SEAL_BYTES = _SEAL_FRONT.size + 32 + _CRC.size
_SEARCH_BYTES = 1 << 20
PRELIMINARY = frozenset({FrameKind.KEY_CHECK, FrameKind.DICTIONARY, FrameKind.INDEX})
"""Kinds of frames that hold neither mail nor the journal."""

ReadAt = Callable[[int, int], bytes]
"""(offset, length) → the bytes there, fewer at the end of the file."""


class PackLocation(NamedTuple):
    """Where a frame is stored."""

    pack_id: UUID
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PackHead:
    id: UUID
    created_at: datetime
    fingerprint: bytes
    key_id: str

    def encode(self) -> bytes:
        milliseconds = int(self.created_at.timestamp() * 1000)
        key_id = self.key_id.encode()
        head = _HEAD.pack(PACK_MAGIC, PACK_VERSION, PACK_HEADER_BYTES, self.id.bytes, milliseconds, self.fingerprint, key_id, 0)
        return head + _CRC.pack(crc32c(head))

    @classmethod
    def decode(cls, data: bytes, name: str) -> PackHead:
        spot = Spot(name, 0)
        if len(data) < PACK_HEADER_BYTES or data[:8] != PACK_MAGIC:
            raise Damage(spot, "this is not a pack, or its header is destroyed")
        _, version, length, pack_id, milliseconds, fingerprint, key_id, _ = _HEAD.unpack_from(data)
        if length != PACK_HEADER_BYTES and version == PACK_VERSION:
            raise Damage(spot, "the pack header has a wrong length")
        if length == PACK_HEADER_BYTES and _CRC.unpack_from(data, _HEAD.size)[0] != crc32c(data[: _HEAD.size]):
            raise Damage(spot, "the pack header's checksum is wrong")
        if version != PACK_VERSION:
            raise UnknownVersion(
                f"pack {name} is of version {version}; this program reads version {PACK_VERSION}: use a newer one"
            )
        text = key_id.rstrip(b"\0").decode("ascii", "replace")
        return cls(UUID(bytes=pack_id), datetime.fromtimestamp(milliseconds / 1000, UTC), fingerprint, text)


@dataclass(frozen=True, slots=True)
class Seal:
    """The last bytes of a finished pack: where its index is, how many frames it has, and a digest of all before the seal.

    The digest is keyed: without the key, a pack can't be changed and sealed again. In packs of older versions it is the
    plain SHA-256.
    """

    index_offset: int
    frames: int
    digest: bytes
    is_keyed: bool

    @classmethod
    def keyed(cls, key: PackKey, index_offset: int, frames: int, file_sha256: bytes) -> Seal:
        """`file_sha256`: of the whole file up to the seal."""
        front = _SEAL_FRONT.pack(KEYED_SEAL_MAGIC, index_offset, frames)
        return cls(index_offset, frames, key.seal_digest(front + file_sha256), is_keyed=True)

    def is_of(self, file_sha256: bytes, key: PackKey) -> bool:
        expected = Seal.keyed(key, self.index_offset, self.frames, file_sha256).digest if self.is_keyed else file_sha256
        return compare_digest(self.digest, expected)

    def encode(self) -> bytes:
        magic = KEYED_SEAL_MAGIC if self.is_keyed else SEAL_MAGIC
        data = _SEAL_FRONT.pack(magic, self.index_offset, self.frames) + self.digest
        return data + _CRC.pack(crc32c(data))

    @classmethod
    def decode(cls, data: bytes) -> Seal | None:
        if (
            len(data) != SEAL_BYTES
            or data[:8] not in (SEAL_MAGIC, KEYED_SEAL_MAGIC)
            or _CRC.unpack_from(data, SEAL_BYTES - _CRC.size)[0] != crc32c(data[: -_CRC.size])
        ):
            return None
        magic, index_offset, frames = _SEAL_FRONT.unpack_from(data)
        return cls(index_offset, frames, data[_SEAL_FRONT.size : -_CRC.size], is_keyed=magic == KEYED_SEAL_MAGIC)


class PackIndexEntry(NamedTuple):
    kind: int
    offset: int
    length: int
    tag: bytes


def encode_index(entries: Iterable[PackIndexEntry]) -> tuple[bytes, int]:
    """Returns the index and the number of entries. A pack may have hundreds of thousands: none is held longer than needed."""
    index = bytearray()
    for entry in entries:
        index += _ENTRY.pack(entry.kind, entry.offset, entry.length, entry.tag)
    return bytes(index), len(index) // _ENTRY.size


def decode_index(data: bytes) -> list[PackIndexEntry]:
    return [PackIndexEntry._make(fields) for fields in _ENTRY.iter_unpack(data)]


class FrameHeader(NamedTuple):
    """A frame whose header is intact. Its payload is not checked yet."""

    offset: int
    header: Header

    @property
    def end(self) -> int:
        return self.offset + self.header.frame_length


def read_seal(read_at: ReadAt, size: int) -> Seal | None:
    return Seal.decode(read_at(size - SEAL_BYTES, SEAL_BYTES)) if size >= PACK_HEADER_BYTES + SEAL_BYTES else None


def walk(read_at: ReadAt, size: int, name: str, start: int = PACK_HEADER_BYTES) -> Iterator[FrameHeader | Damage]:
    """Each frame in order. Where there is none, a Damage, and then the frames after the next magic."""
    end = size - SEAL_BYTES if read_seal(read_at, size) else size
    at = start
    window, base = b"", 0
    while at < end:
        if not base <= at <= base + len(window) - HEADER_BYTES:
            window, base = read_at(at, min(_SEARCH_BYTES // 8, end - at)), at
        try:
            header = decode_header(window[at - base : at - base + HEADER_BYTES], Spot(name, at))
            after = at + header.frame_length
            if after > end:
                raise Damage(Spot(name, at), "a frame is cut off")
        except Damage as damage:
            yield damage
            at = _next_frame(read_at, at + 1, end, name)
            continue
        yield FrameHeader(at, header)
        at = after


def _next_frame(read_at: ReadAt, at: int, end: int, name: str) -> int:
    """Where the next whole header is; the end if there is none."""
    while at < end:
        window = read_at(at, min(_SEARCH_BYTES, end - at))
        hit = window.find(MAGIC)
        while hit >= 0:
            head = window[hit : hit + HEADER_BYTES]
            if len(head) < HEADER_BYTES:
                head = read_at(at + hit, HEADER_BYTES)
            try:
                decode_header(head, Spot(name, at + hit))
            except Damage:
                hit = window.find(MAGIC, hit + 1)
                continue
            return at + hit
        at += max(1, len(window) - len(MAGIC) + 1)
    return end


def payload_crc(read_at: ReadAt, found: FrameHeader) -> int:
    """The checksum of a payload as it is on disk, without holding all of it."""
    crc, at, end = 0, found.offset + HEADER_BYTES, found.end
    while at < end:
        piece = read_at(at, min(_SEARCH_BYTES, end - at))
        if not piece:
            break
        crc = extend(crc, piece)
        at += len(piece)
    return int(crc)


@dataclass(frozen=True, slots=True)
class Survey:
    """The frames of an unsealed pack, checked by their checksums."""

    end: int
    """The end of the last intact frame, whatever is damaged before it."""
    has_content: bool
    """There is an intact frame of mail or of the journal."""
    damage: tuple[Damage, ...]
    is_torn: bool
    """The only damage is an unfinished frame at the end, as a killed writer leaves it."""

    @property
    def is_damaged(self) -> bool:
        """More than a torn end: such a pack is never truncated and never appended to."""
        return bool(self.damage) and not self.is_torn

    @property
    def has_gaps(self) -> bool:
        """Intact frames follow damaged ones."""
        return any(damage.spot.offset < self.end for damage in self.damage)


def survey(
    read_at: ReadAt,
    size: int,
    name: str,
    start: int = PACK_HEADER_BYTES,
    see: Callable[[FrameHeader], None] = lambda found: None,
) -> Survey:
    """Reads every frame from `start` on. An index without its seal counts as unfinished: sealing begins again.

    `see` is called with each other frame whose header is whole, whatever its payload is like.
    """
    end, has_content, damage = start, False, []
    for item in walk(read_at, size, name, start):
        if isinstance(item, Damage):
            damage.append(item)
            continue
        if item.header.kind == FrameKind.INDEX:
            continue
        see(item)
        if not is_whole(read_at, item):
            damage.append(Damage(Spot(name, item.offset), "the payload's checksum is wrong"))
        else:
            end = item.end
            has_content |= item.header.kind not in PRELIMINARY
    return Survey(end, has_content, tuple(damage), len(damage) == 1 and _is_torn(read_at, size, end, damage[0]))


def is_whole(read_at: ReadAt, found: FrameHeader) -> bool:
    return payload_crc(read_at, found) == found.header.payload_crc


def _is_torn(read_at: ReadAt, size: int, end: int, damage: Damage) -> bool:
    """A frame that the file ends in, or one whose header was still to be written."""
    at = damage.spot.offset
    if at < end or (at > end and size - at == SEAL_BYTES):  # behind an index of full length: a damaged seal
        return False
    head = read_at(at, HEADER_BYTES)
    if len(head) < HEADER_BYTES or not any(head):
        return True
    try:
        return at + decode_header(head, damage.spot).frame_length > size
    except Damage:
        return False
