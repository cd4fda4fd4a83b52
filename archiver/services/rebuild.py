"""An empty Postgres from the packs alone: sources (without credentials), mailboxes, messages, copies, changes, deletions.

First a look at the journal of all packs. Then frames into `objects` and `messages`, pack by pack, by several processes, and
behind that, in a thread of its own, the journal in the order in which it happened; then the tombstones, and what has no copy
goes. What a crash left without a commit comes in as well: more than before, never less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.errors import UsageError
from archiver.models.ids import uuid7
from archiver.models.states import PackState
from archiver.services.forked import MOST_PROCESSES, useful_processes, workers
from archiver.services.rebuild_stretch import Arrival, Outcome, Stretch, StretchReader, objects_of
from archiver.services.replay import Entry, Reading, Rebuilt, Replay
from archiver.store.archive import Archive, entries
from archiver.store.backend import PackFile
from archiver.store.errors import Damage
from archiver.store.frames import Kind
from archiver.store.journal import Changes, Config, Occurrences, Tombstones, order_of
from archiver.store.pack import Place, read_seal, survey

_STRETCH = 1_000  # objects that a process gets at a time
_JOURNAL: dict[int, Callable[[bytes], Any]] = {
    Kind.OCCURRENCE: Occurrences.decode,
    Kind.COPY_CHANGE: Changes.decode,
    Kind.TOMBSTONE: Tombstones.decode,
    Kind.CONFIG: Config.decode,
}

_ADD_PACK = text("""
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, :state, :size, :frames, :sha256, CASE WHEN :state = 'sealed' THEN now() END)""")
_SHED = text("""
    UPDATE message_copies c SET message_id = NULL WHERE c.deleted_at IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM message_copies o WHERE o.message_id = c.message_id AND o.deleted_at IS NULL)""")
_DROP_MESSAGES = text("DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)")
_DROP_PARTICIPANTS = text("DELETE FROM participants p WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = p.message_id)")
_DROP_OBJECTS = text("""
    DELETE FROM objects o WHERE (kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256))
    OR (kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256))""")
_HOMELESS = text("SELECT count(*) FROM message_copies c WHERE NOT EXISTS (SELECT 1 FROM mailboxes m WHERE m.id = c.mailbox_id)")
_ANNOUNCE = text("INSERT INTO outbox (id, queue, job, payload) VALUES (:id, 'indexing', 'reindex', '{}'::jsonb)")


Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


def rebuild(engine: Engine, archive: Archive, progress: Progress | None = None, *, processes: int | None = None) -> Rebuilt:
    """`processes`: how many read; by themselves as many as there are cores, where that can be done, and pays."""
    with engine.connect() as connection:
        filled = connection.execute(text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")).scalar_one()
    if filled:
        raise UsageError("rebuild wants an empty database: there are messages or packs in this one")
    return _Rebuild(engine, archive, processes).run(progress or (lambda done, total: None))


class _Rebuild:
    def __init__(self, engine: Engine, archive: Archive, processes: int | None) -> None:
        self.engine = engine
        self.archive = archive
        self.processes = processes
        self.result = Rebuilt()
        self.journal: dict[UUID, list[Entry]] = {}
        self.objects = 0
        self.reading = Reading()
        self.replaying: Future[None]
        self.postponed: list[tuple[Place, Arrival]] = []

    def run(self, progress: Progress) -> Rebuilt:
        packs = list(self.archive.backend.packs())
        for pack_id in packs:
            self._read_journal(pack_id)
        places = {pack: [one.place for one in found if one.kind is Kind.OCCURRENCE] for pack, found in self.journal.items()}
        reader = StretchReader(self.engine, self.archive, places)
        journal = [entry for found in self.journal.values() for entry in found]
        replay = Replay(self.engine, journal, self._decode, self.reading, self.result)
        reading = workers(self.engine, reader.read, self._useful_processes(), "begin again, with an empty database")
        with reading as read, ThreadPoolExecutor(1, "replay") as beside:
            self.replaying = beside.submit(replay.run)
            try:
                self._read_packs(packs, read, progress)
                self._take(reader.read_postponed(self.postponed))
            except BaseException:
                self.reading.finish(failed=True)
                raise
            self.reading.finish(failed=False)
            self.replaying.result()
        with self.engine.begin() as connection:
            connection.execute(_SHED)
            connection.execute(_DROP_MESSAGES)
            connection.execute(_DROP_PARTICIPANTS)
            connection.execute(_DROP_OBJECTS)
            if homeless := connection.execute(_HOMELESS).scalar_one():
                self.result.damage.append(f"{homeless} copies are of a mailbox that is not there")
            connection.execute(_ANNOUNCE, {"id": uuid7()})
            self.result.messages = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()
        return self.result

    def _useful_processes(self) -> int:
        return useful_processes(self.archive, self.objects // _STRETCH + 1, self.processes)

    def _read_journal(self, pack_id: UUID) -> None:
        """Remembers where the journal frames of a pack are, and when they were written."""
        self.journal[pack_id] = found = []
        try:
            listed = list(entries(self.archive.backend.open(pack_id), self.archive.frames))
        except Damage:
            return  # told when its messages are read
        self.objects += len(listed)
        for entry in listed:
            if entry.kind in _JOURNAL:
                place, kind = Place(pack_id, entry.offset, entry.length), Kind(entry.kind)
                try:
                    found.append(Entry(*order_of(self.archive.frames.open(place).bytes()), kind, place))
                except Damage as damage:
                    self.result.damage.append(str(damage))

    def _decode(self, place: Place, kind: Kind) -> Any:
        try:
            return _JOURNAL[kind](self.archive.frames.open(place).bytes())
        except Damage as damage:
            self.result.damage.append(str(damage))
            return None

    def _read_packs(self, packs: list[UUID], read: Callable[[Stretch], Future[Outcome]], progress: Progress) -> None:
        """Some stretches are always in work; what they gave is taken in their order."""
        in_work: deque[tuple[Stretch, int, Future[Outcome]]] = deque()

        def finish(at_most: int) -> None:
            while len(in_work) > at_most:
                stretch, packs_done, outcome = in_work.popleft()
                self._take(outcome.result())
                self.reading.reached(stretch.pack_id, stretch.end)
                progress(packs_done, len(packs))
                if self.replaying.done():
                    self.replaying.result()  # raises what stopped it

        for number, pack_id in enumerate(packs):
            stretches = self._stretches(pack_id)
            for stretch in stretches:
                in_work.append((stretch, number + (stretch is stretches[-1]), read(stretch)))
                finish(2 * MOST_PROCESSES)
        finish(0)

    def _stretches(self, pack_id: UUID) -> list[Stretch]:
        try:
            pack = self.archive.backend.open(pack_id)
            listed = objects_of(pack, self.archive)
            row = _pack_row(pack, sum(1 for _ in entries(pack, self.archive.frames)))
        except Damage as damage:
            self.result.damage.append(str(damage))
            return []
        self.result.packs += 1
        with self.engine.begin() as connection:
            connection.execute(_ADD_PACK, row)
        found = []
        for start in range(0, max(1, len(listed)), _STRETCH):
            stop = min(start + _STRETCH, len(listed))
            found.append(Stretch(pack_id, start, stop, pack.size if stop == len(listed) else listed[stop].offset))
        return found

    def _take(self, outcome: Outcome) -> None:
        self.result.damage += outcome.damage
        self.postponed += outcome.postponed


def _pack_row(pack: PackFile, frames: int) -> dict[str, Any]:
    """A damaged pack is left as it is: whoever appended to it would have to cut it first."""
    seal = read_seal(pack.read_at, pack.size)
    found = None if seal else survey(pack.read_at, pack.size, pack.name)
    state = PackState.SEALED if found is None else PackState.LEFT if found.is_damaged else PackState.OPEN
    return {
        "id": pack.id,
        "name": pack.name,
        "state": state,
        "size": found.end if found else pack.size,
        "frames": frames,
        "sha256": seal.digest if seal else None,
    }
