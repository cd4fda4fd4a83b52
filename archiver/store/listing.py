"""What a pack holds, for those who replay it: its frames, where the last whole one ends, and everything that is damaged."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.store.backend import PackFile
from archiver.store.errors import Damage, Spot
from archiver.store.frames import HEADER_BYTES, Kind, decode_header
from archiver.store.pack import (
    PACK_HEADER_BYTES,
    SEAL_BYTES,
    Found,
    IndexEntry,
    PackHead,
    Seal,
    decode_index,
    payload_crc,
    read_seal,
    walk,
)
from archiver.store.reader import FrameReader


@dataclass(frozen=True, slots=True)
class Listing:
    entries: tuple[IndexEntry, ...]
    """Each frame whose header is whole, in order."""
    seal: Seal | None
    end: int
    """Behind the last whole frame, whatever is damaged before it; of a sealed pack, the end of the file."""
    damage: tuple[Damage, ...]
    """Not the torn end of a pack that was not finished: that never counted."""


def list_pack(pack: PackFile, frames: FrameReader, start: int = PACK_HEADER_BYTES) -> Listing:
    """From `start` on. A sealed pack is taken at its index's word, as each frame is checked when it is opened."""
    damage = _head_damage(pack) if start == PACK_HEADER_BYTES else []
    seal = read_seal(pack.read_at, pack.size)
    if seal is not None:
        try:
            listed = decode_index(frames.open_in(pack, seal.index_offset, 0).bytes())
            return Listing(tuple(entry for entry in listed if entry.offset >= start), seal, pack.size, tuple(damage))
        except Damage as lost_index:
            damage.append(lost_index)
    found, end, met = _walk(pack, start)
    if seal is None and len(met) == 1 and _is_torn(pack, end, met[0]):
        met = []
    return Listing(tuple(found), seal, pack.size if seal else end, (*damage, *met))


def check_frame(pack: PackFile, listed: IndexEntry) -> None:
    """Raises Damage unless header and payload are what was written. Cheaper than opening the frame."""
    spot = Spot(pack.name, listed.offset)
    header = decode_header(pack.read_at(listed.offset, HEADER_BYTES), spot)
    if header.tag != listed.tag:
        raise Damage(spot, "another object lies here")
    if not _is_whole(pack, Found(listed.offset, header)):
        raise Damage(spot, "the payload's checksum is wrong")


def _head_damage(pack: PackFile) -> list[Damage]:
    try:
        PackHead.decode(pack.read_at(0, PACK_HEADER_BYTES), pack.name)
    except Damage as damage:
        return [damage]
    return []


def _walk(pack: PackFile, start: int) -> tuple[list[IndexEntry], int, list[Damage]]:
    """An index without its seal is left out: sealing begins again."""
    found, end, damage = [], start, []
    for item in walk(pack.read_at, pack.size, pack.name, start):
        if isinstance(item, Damage):
            damage.append(item)
        elif item.header.kind != Kind.INDEX:
            found.append(IndexEntry(item.header.kind, item.offset, item.header.frame_length, item.header.tag))
            if _is_whole(pack, item):
                end = item.end
            else:
                damage.append(Damage(Spot(pack.name, item.offset), "the payload's checksum is wrong"))
    return found, end, damage


def _is_whole(pack: PackFile, item: Found) -> bool:
    return payload_crc(pack.read_at, item) == item.header.payload_crc


def _is_torn(pack: PackFile, end: int, damage: Damage) -> bool:
    """A frame that the file ends in, or one whose header was still to be written, as a killed writer leaves it."""
    at = damage.spot.offset
    if at < end or (at > end and pack.size - at == SEAL_BYTES):  # behind an index of full length: a damaged seal
        return False
    head = pack.read_at(at, HEADER_BYTES)
    if len(head) < HEADER_BYTES or not any(head):
        return True
    try:
        return at + decode_header(head, damage.spot).frame_length > pack.size
    except Damage:
        return False
