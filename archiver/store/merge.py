"""Merges the frames of several packs into a new one. Frames are copied unchanged, or re-encrypted with the active key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from archiver.store.archive import Archive
from archiver.store.backend import PackFile, SealedPack
from archiver.store.content import StoredMessage
from archiver.store.dictionaries import Trainer
from archiver.store.encoder import Record
from archiver.store.errors import Damage, Spot
from archiver.store.files import OsFiles
from archiver.store.frames import FrameKind
from archiver.store.pack import PACK_HEADER_BYTES, FrameHeader, PackLocation, payload_crc, read_seal, survey, walk
from archiver.store.reader import Frame
from archiver.store.writer import PackWriter

_LEFT_OUT = frozenset({FrameKind.INDEX, FrameKind.KEY_CHECK})


@dataclass(frozen=True, slots=True)
class Moved:
    old: PackLocation
    offset: int
    length: int


class Merge:
    """Not durable before the finished file is put into the archive."""

    def __init__(self, archive: Archive, folder: Path, *, rekey: bool) -> None:
        self._archive = archive
        self._rekey = rekey
        self._moved: list[Moved] = []
        self._dictionaries: dict[bytes, PackLocation] = {}
        self._writer = PackWriter.create(folder, archive.keys.active, Trainer(), OsFiles())
        self._writer.begin()
        self.path = self._writer.path

    def add(self, pack: PackFile, known_end: int, keeps: Callable[[FrameHeader], bool]) -> None:
        """Raises Damage for a damaged pack, which must stay. The torn end of an unfinished pack is no damage."""
        for item in walk(pack.read_at, _end(pack, known_end), pack.name):
            if isinstance(item, Damage):
                raise item
            if item.header.kind not in _LEFT_OUT and keeps(item):
                if payload_crc(pack.read_at, item) != item.header.payload_crc:
                    raise Damage(Spot(pack.name, item.offset), "the payload's checksum is wrong")
                self._add_frame(pack, item)

    def _add_frame(self, pack: PackFile, item: FrameHeader) -> None:
        old = PackLocation(pack.id, item.offset, item.header.frame_length)
        if item.header.kind == FrameKind.DICTIONARY:
            known = self._dictionaries.get(item.header.tag)
            if known is not None:
                self._moved.append(Moved(old, known.offset, known.length))
                return
            self._dictionaries[item.header.tag] = PackLocation(
                self._writer.pack_id, self._writer.size, item.header.frame_length
            )
        if self._rekey and item.header.fingerprint != self._archive.keys.active.fingerprint:
            frame = self._archive.frames.open_in(pack, item.offset, item.header.frame_length)
            stored = self._writer.add(_record(self._archive, frame, old))
            self._moved.append(Moved(old, stored.offset, stored.length))
            return
        offset = self._writer.size
        at, end = item.offset, item.end
        while at < end:
            piece = pack.read_at(at, min(1 << 20, end - at))
            self._writer.write_raw(piece)
            at += len(piece)
        self._moved.append(Moved(old, offset, item.header.frame_length))

    def finish(self) -> tuple[SealedPack, list[Moved]]:
        seal = self._writer.seal()
        return SealedPack(self._writer.pack_id, self._writer.size, seal), self._moved


def _end(pack: PackFile, known_end: int) -> int:
    if read_seal(pack.read_at, pack.size) is not None:
        return pack.size
    found = survey(pack.read_at, pack.size, pack.name, max(known_end, PACK_HEADER_BYTES))
    if found.has_gaps or pack.size < known_end:
        raise Damage(Spot(pack.name, known_end), "intact frames follow damaged ones, or the file is truncated")
    return found.end


def _record(archive: Archive, frame: Frame, place: PackLocation) -> Record:
    """The same content for a new frame; a recipe stays a recipe."""
    content = StoredMessage(lambda: archive.frames.open(place).pieces, frame.header.content_length)
    return Record(FrameKind(frame.header.kind), frame.sha256, content, is_recipe=frame.is_recipe, is_text=False)
