"""The journal frames of several packs, without repetitions, in the order in which they were written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage
from archiver.store.frames import FrameKind
from archiver.store.journal import BEFORE_STAMPS, Changes, Config, LabelChanges, OccurrenceBatch, Stamp, Tombstones, order_of
from archiver.store.listing import check_frame
from archiver.store.pack import PackIndexEntry, PackLocation

_DECODERS: dict[int, Callable[[bytes], Any]] = {
    FrameKind.OCCURRENCE: OccurrenceBatch.decode,
    FrameKind.COPY_CHANGE: Changes.decode,
    FrameKind.TOMBSTONE: Tombstones.decode,
    FrameKind.TOMBSTONE_CONFIRMED: Tombstones.decode_confirmed,
    FrameKind.CONFIG: Config.decode,
    FrameKind.MESSAGE_LABELS: LabelChanges.decode,
}
JOURNAL_KINDS = frozenset(_DECODERS)


@dataclass(slots=True)
class JournalEntry:
    """A journal frame: its position in the order of all frames, and all places where it was found."""

    stamp: Stamp
    at: datetime
    kind: FrameKind
    places: list[PackLocation]
    is_new: bool = True
    """False: the database it is replayed into is already past it. The transaction that wrote it was rolled back, or its effects
    are known."""

    @property
    def order(self) -> tuple[Stamp, datetime, UUID, int]:
        last = self.places[-1]
        return self.stamp, self.at, last.pack_id, last.offset

    @property
    def is_finished(self) -> bool:
        """Whether the batch was written to its end, where its journal is repeated."""
        packs = [place.pack_id for place in self.places]
        return self.stamp == BEFORE_STAMPS or len(set(packs)) < len(packs)


class JournalEntries:
    """Remembers where the frames are and decodes them again when needed: a journal does not fit into memory, its places do."""

    def __init__(self, archive: Archive, damage: list[str], since: Stamp | None = None) -> None:
        """`since`: the last stamp of the database that they are replayed into; None if it is empty."""
        self.damage = damage
        self._archive = archive
        self._since = since
        self._found: dict[tuple[int, bytes], JournalEntry] = {}
        """By the SHA-256 of the content."""
        self._tagged: dict[tuple[int, bytes], JournalEntry] = {}
        """By its tag, which differs after a change of keys."""

    def read(self, pack: PackFile, listed: Iterable[PackIndexEntry]) -> None:
        pack = pack.read_ahead()
        for entry in listed:
            if entry.kind in JOURNAL_KINDS:
                try:
                    self._add(pack, entry)
                except Damage as damage:
                    add_damage(self.damage, damage)

    def _add(self, pack: PackFile, listed: PackIndexEntry) -> None:
        """A batch's journal is in its pack twice: the repetition is only compared."""
        place, kind = PackLocation(pack.id, listed.offset, listed.length), FrameKind(listed.kind)
        known = self._tagged.get((kind, listed.tag))
        if known is not None:
            check_frame(pack, listed)
        else:
            frame = self._archive.frames.open_in(pack, listed.offset, listed.length)
            known = self._found.get((kind, frame.sha256))
            if known is None:
                stamp, at = order_of(frame.bytes())
                known = JournalEntry(stamp, at, kind, [], is_new=self._since is None or stamp > self._since)
                self._found[kind, frame.sha256] = known
            self._tagged[kind, listed.tag] = known
        known.places.append(place)

    def in_order(self) -> list[JournalEntry]:
        return sorted(self._found.values(), key=lambda entry: entry.order)

    @property
    def newest(self) -> Stamp:
        """The highest generation, and the highest number of all."""
        stamps = [entry.stamp for entry in self._found.values()] or [BEFORE_STAMPS]
        return Stamp(max(stamp.generation for stamp in stamps), max(stamp.number for stamp in stamps))

    def occurrences(self) -> dict[UUID, list[PackLocation]]:
        """The occurrence frames of each pack, one place for each."""
        found: dict[UUID, list[PackLocation]] = defaultdict(list)
        for entry in self.in_order():
            if entry.kind is FrameKind.OCCURRENCE:
                for pack_id, place in {place.pack_id: place for place in entry.places}.items():
                    found[pack_id].append(place)
        return found

    def decoded_occurrences(self, pack_id: UUID) -> Iterator[tuple[JournalEntry, OccurrenceBatch]]:
        """The occurrence frames of this pack."""
        for entry in self._found.values():
            if entry.kind is FrameKind.OCCURRENCE and any(place.pack_id == pack_id for place in entry.places):
                batch = self.decode(entry)
                if batch is not None:
                    yield entry, batch

    def decode(self, entry: JournalEntry) -> Any:
        """From any of its places; None if all are damaged."""
        for place in entry.places:
            try:
                return _DECODERS[entry.kind](self._archive.frames.open(place).bytes())
            except Damage as damage:
                add_damage(self.damage, damage)
        return None


def add_damage(reported: list[str], damage: Damage) -> None:
    """Once, however often it is found."""
    if str(damage) not in reported:
        reported.append(str(damage))
