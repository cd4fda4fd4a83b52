"""Reads a segment of a pack into `objects` and `messages`: the task of the processes of a rebuild.

Segments are independent of each other. A message whose parts have not been found yet is returned, to be read later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from archiver.db import sql
from archiver.db.ids import message_uuid
from archiver.maintenance.recovery.journal_entries import add_damage
from archiver.maintenance.recovery.replay import Begin
from archiver.store.archive import Archive, entries
from archiver.store.backend import PackFile
from archiver.store.content import MemoryContent, StoredMessage
from archiver.store.errors import Damage
from archiver.store.frames import FrameKind
from archiver.store.journal import OccurrenceBatch
from archiver.store.pack import PackIndexEntry, PackLocation
from archiver.store.reader import CachingReader, FindPlace, Frame, ObjectReader, recipe_of
from archiver.store.recipe import Recipe
from archiver.sync.ingest import statements
from archiver.sync.ingest.rows import MessageRows, describe, describe_all

_PORTION = 200  # frames in a transaction
_IN_MEMORY_BYTES = 8 << 20
OBJECT_KINDS = (FrameKind.MESSAGE, FrameKind.PART, FrameKind.DICTIONARY, FrameKind.TEXT)
_ADD_PARTS = """
    INSERT INTO message_parts (message_id, part_sha256)
    SELECT m, decode(h, 'hex') FROM json_to_recordset(:rows::json) AS x(m uuid, h text) JOIN messages ON messages.id = m
    ON CONFLICT DO NOTHING"""


class RebuildSegment(NamedTuple):
    """Some of the objects of a pack, in their order."""

    pack_id: UUID
    start: int
    stop: int
    end: int
    """Everything before this offset is in Postgres once this segment and those before it are."""


class Arrival(NamedTuple):
    """When and with which run a message was archived, if its pack says so."""

    received_at: datetime | None = None
    run_id: UUID | None = None
    at: datetime | None = None


@dataclass(slots=True)
class RebuildOutcome:
    damage: list[str] = field(default_factory=list)
    postponed: list[tuple[PackLocation, Arrival]] = field(default_factory=list)
    added: list[UUID] = field(default_factory=list)
    """Messages that were not there before."""


class _Ready(NamedTuple):
    """A message whose bytes are available."""

    sha256: bytes
    content: MemoryContent | StoredMessage
    arrival: Arrival
    parts: tuple[bytes, ...] = ()


@dataclass(slots=True)
class _Pack:
    file: PackFile
    objects: list[PackIndexEntry]
    parts: dict[bytes, PackLocation]
    """By their tags."""
    arrivals: dict[bytes, Arrival]
    """By the SHA-256 of the message: the first occurrence counts."""


def objects_of(pack: PackFile, archive: Archive) -> list[PackIndexEntry]:
    return [entry for entry in entries(pack, archive.frames) if entry.kind in OBJECT_KINDS]


class SegmentReader:
    def __init__(
        self,
        begin: Begin,
        archive: Archive,
        occurrences: Mapping[UUID, Sequence[PackLocation]],
        *,
        lost_packs: Sequence[UUID] | None = None,
        look_up: FindPlace | None = None,
    ) -> None:
        """`occurrences`: where the occurrence frames of each pack are. `lost_packs`: objects in these packs move to the place
        where they are found now; None in a rebuild, which does not report the added messages."""
        self._begin = begin
        self._frames = archive.frames
        self._archive = archive
        self._occurrences = occurrences
        self._lost_packs = lost_packs
        self._look_up = look_up or archive.objects.find
        self._objects = CachingReader(archive.frames, ObjectReader(archive.frames, self._find), holds_found=True)
        self._pack: _Pack | None = None
        self._outcome = RebuildOutcome()

    def read(self, segment: RebuildSegment) -> RebuildOutcome:
        self._outcome = RebuildOutcome()
        if segment.start < segment.stop:
            pack = self._open(segment.pack_id)
            for at in range(segment.start, segment.stop, _PORTION):
                self._portion(pack, pack.objects[at : min(at + _PORTION, segment.stop)])
        return self._outcome

    def read_some(self, pack_id: UUID, objects: Sequence[PackIndexEntry]) -> RebuildOutcome:
        """Reads these objects of a pack."""
        self._outcome = RebuildOutcome()
        pack = self._open(pack_id)
        for at in range(0, len(objects), _PORTION):
            self._portion(pack, objects[at : at + _PORTION])
        return self._outcome

    def read_postponed(self, postponed: Sequence[tuple[PackLocation, Arrival]]) -> RebuildOutcome:
        """Call it when all segments are read."""
        self._outcome = RebuildOutcome()
        for start in range(0, len(postponed), _PORTION):
            ready: list[_Ready] = []
            for place, arrival in postponed[start : start + _PORTION]:
                try:
                    self._prepare(self._frames.open(place), arrival, ready, may_postpone=False)
                except Damage as damage:
                    add_damage(self._outcome.damage, damage)
            self._store(ready)
        return self._outcome

    def _open(self, pack_id: UUID) -> _Pack:
        if self._pack is None or self._pack.file.id != pack_id:
            file = self._archive.backend.open(pack_id)
            objects = objects_of(file, self._archive)
            parts = {
                entry.tag: PackLocation(pack_id, entry.offset, entry.length)
                for entry in objects
                if entry.kind == FrameKind.PART
            }
            self._pack = _Pack(file.read_ahead(), objects, parts, self._arrivals(pack_id))
        return self._pack

    def _arrivals(self, pack_id: UUID) -> dict[bytes, Arrival]:
        first: dict[bytes, Arrival] = {}
        for place in self._occurrences.get(pack_id, ()):
            try:
                batch = OccurrenceBatch.decode(self._frames.open(place).bytes())
            except Damage:
                continue  # reported when the journal is replayed
            for copy in batch.copies:
                first.setdefault(copy.sha256, Arrival(copy.received_at, batch.run_id, batch.at))
        return first

    def _find(self, sha256: bytes, kind: FrameKind) -> PackLocation | None:
        """A part that another process has read: in the same pack, or where Postgres has it by now."""
        if self._pack is not None:
            for key in self._archive.keys:
                if place := self._pack.parts.get(key.content_tag(sha256)):
                    return place
        return self._look_up(sha256, kind)

    def _portion(self, pack: _Pack, listed: Sequence[PackIndexEntry]) -> None:
        objects: list[dict[str, Any]] = []
        ready: list[_Ready] = []
        for entry in listed:
            try:
                frame = self._frames.open_in(pack.file, entry.offset, entry.length)
                label, raw_bytes = FrameKind(entry.kind).label, frame.header.content_length
                row = {"h": frame.sha256.hex(), "k": label, "p": entry.offset, "s": entry.length, "r": raw_bytes}
                self._take(pack, frame, ready)
            except Damage as damage:
                add_damage(self._outcome.damage, damage)
            else:
                objects.append(row)
        objects.sort(key=lambda row: (row["h"], row["k"]))
        self._store(ready, objects, pack.file.id)

    def _take(self, pack: _Pack, frame: Frame, ready: list[_Ready]) -> None:
        is_small = frame.header.content_length <= _IN_MEMORY_BYTES
        if frame.header.kind == FrameKind.MESSAGE:
            arrival = pack.arrivals.get(frame.sha256) or Arrival()
            if frame.is_recipe or not is_small:
                self._prepare(frame, arrival, ready, may_postpone=True)
            else:
                ready.append(_Ready(frame.sha256, MemoryContent(frame.bytes()), arrival))
        elif frame.header.kind == FrameKind.PART:
            self._objects.add(frame.sha256, frame.place, frame.bytes() if is_small else None)

    def _prepare(self, frame: Frame, arrival: Arrival, ready: list[_Ready], *, may_postpone: bool) -> None:
        """A message that is assembled from parts, or so large that it is read as a stream."""
        try:
            content = _content(self._objects, frame)
            if may_postpone and not all(self._objects.find(part, FrameKind.PART) for part in content.parts):
                self._outcome.postponed.append((frame.place, arrival))
                return
            held = MemoryContent(b"".join(content.pieces())) if content.size <= _IN_MEMORY_BYTES else content
            ready.append(_Ready(frame.sha256, held, arrival, content.parts))
        except Damage as damage:
            add_damage(self._outcome.damage, damage)

    def _store(self, ready: Sequence[_Ready], objects: Sequence[Any] = (), pack_id: UUID | None = None) -> None:
        """One statement for each table, its rows ordered by key, so that concurrent processes can't deadlock."""
        described = self._describe(ready)
        described.sort(key=lambda pair: pair[0].sha256)
        now = datetime.now(UTC)
        rows = [{**row.message, "run": arrival.run_id, "at": arrival.at or now} for row, arrival in described]
        participants = [entry for row, _ in described for entry in row.participants]
        parts = sorted({(message.sha256, part) for message in ready for part in message.parts})
        with self._begin() as connection, sql.Pipeline(connection) as pipeline:
            added = pipeline.send(statements.ADD_MESSAGES_OF_RUNS, rows=sql.rows(rows))
            if participants:
                pipeline.send(statements.ADD_PARTICIPANTS, rows=sql.rows(participants))
            if parts:
                linked = [{"m": message_uuid(sha256), "h": part.hex()} for sha256, part in parts]
                pipeline.send(_ADD_PARTS, rows=sql.rows(linked))
            if objects and self._lost_packs is None:
                pipeline.send(statements.ADD_OBJECTS, rows=sql.rows(objects), pack_id=pack_id)
            elif objects:
                once = {(row["h"], row["k"]): row for row in objects}  # one statement must not move a row twice
                rows_once = sql.rows(list(once.values()))
                pipeline.send(statements.ADD_OR_MOVE_OBJECTS, rows=rows_once, pack_id=pack_id, lost=self._lost_packs)
            if self._lost_packs is not None:
                self._outcome.added += pipeline.fetch(added, UUID)

    def _describe(self, ready: Sequence[_Ready]) -> list[tuple[MessageRows, Arrival]]:
        held = [
            (message, (message.content, message.sha256, message.arrival.received_at))
            for message in ready
            if isinstance(message.content, MemoryContent)
        ]
        rows = describe_all([mail for _, mail in held])
        found = [(row, one.arrival) for row, (one, _) in zip(rows, held, strict=True)]
        for one in ready:
            if isinstance(one.content, StoredMessage):
                try:
                    found.append((describe(one.content, one.sha256, one.arrival.received_at), one.arrival))
                except Damage as damage:
                    add_damage(self._outcome.damage, damage)
        return found


def _content(objects: CachingReader, frame: Frame) -> StoredMessage:
    """A message that is read from the packs whenever it is accessed."""
    place = frame.place
    if not frame.is_recipe:
        return StoredMessage(lambda: objects.frames.open(place).pieces, frame.header.content_length)
    if frame.header.content_length <= _IN_MEMORY_BYTES:
        data = frame.bytes()
        recipe, _ = Recipe.decode(data)
        assemble = lambda: objects.assemble(frame._replace(pieces=iter((data,))))  # noqa: E731
        return StoredMessage(assemble, recipe.message_length, _parts(recipe))
    recipe = recipe_of(frame)
    return StoredMessage(lambda: objects.assemble(objects.frames.open(place)), recipe.message_length, _parts(recipe))


def _parts(recipe: Recipe) -> tuple[bytes, ...]:
    return tuple(sorted(set(recipe.part_hashes)))
