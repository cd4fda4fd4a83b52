"""The content of a pack, for replaying it: its frames, where the last intact one ends, and all damage."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.store.backend import PackFile
from archiver.store.errors import Damage, Spot
from archiver.store.frames import HEADER_BYTES, decode_header
from archiver.store.pack import (
    PACK_HEADER_BYTES,
    FrameHeader,
    PackHead,
    PackIndexEntry,
    Seal,
    decode_index,
    is_whole,
    read_seal,
    survey,
)
from archiver.store.reader import FrameReader


@dataclass(frozen=True, slots=True)
class PackListing:
    entries: tuple[PackIndexEntry, ...]
    """Each frame whose header is whole, in order."""
    seal: Seal | None
    end: int
    """The end of the last intact frame, whatever is damaged before it; for a sealed pack, the end of the file."""
    damage: tuple[Damage, ...]
    """Without the torn end of an unfinished pack, which was never committed."""


def list_pack(pack: PackFile, frames: FrameReader, start: int = PACK_HEADER_BYTES) -> PackListing:
    """From `start` on. The index of a sealed pack is trusted, because each frame is checked when it is opened."""
    damage = _head_damage(pack) if start == PACK_HEADER_BYTES else []
    seal = read_seal(pack.read_at, pack.size)
    if seal is not None:
        try:
            listed = decode_index(frames.open_in(pack, seal.index_offset, 0).bytes())
            return PackListing(tuple(entry for entry in listed if entry.offset >= start), seal, pack.size, tuple(damage))
        except Damage as lost_index:
            damage.append(lost_index)
    entries: list[PackIndexEntry] = []
    found = survey(pack.read_at, pack.size, pack.name, start, lambda item: entries.append(_entry(item)))
    met = () if seal is None and found.is_torn else found.damage
    return PackListing(tuple(entries), seal, pack.size if seal else found.end, (*damage, *met))


def check_frame(pack: PackFile, listed: PackIndexEntry) -> None:
    """Raises Damage unless header and payload are what was written. Cheaper than opening the frame."""
    spot = Spot(pack.name, listed.offset)
    header = decode_header(pack.read_at(listed.offset, HEADER_BYTES), spot)
    if header.tag != listed.tag:
        raise Damage(spot, "another object is stored here")
    if not is_whole(pack.read_at, FrameHeader(listed.offset, header)):
        raise Damage(spot, "the payload's checksum is wrong")


def _head_damage(pack: PackFile) -> list[Damage]:
    try:
        PackHead.decode(pack.read_at(0, PACK_HEADER_BYTES), pack.name)
    except Damage as damage:
        return [damage]
    return []


def _entry(item: FrameHeader) -> PackIndexEntry:
    return PackIndexEntry(item.header.kind, item.offset, item.header.frame_length, item.header.tag)
