"""An empty Postgres from the packs alone: sources (without credentials), mailboxes, messages, copies, changes, deletions.

First a look at the journal of all packs. Then frames into `objects` and `messages`, pack by pack, by several processes, and
behind that, in a thread of its own, the journal in the order in which it happened; then the tombstones, and what they leave
without a copy goes. A message that no journal frame tells of is kept, in a mailbox of its own. What a crash left without a
commit comes in as well: more than before, never less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.errors import UsageError
from archiver.models.ids import uuid7
from archiver.models.states import PackState
from archiver.services.archive_state import rise_above
from archiver.services.forked import MOST_PROCESSES, useful_processes, workers
from archiver.services.found_mail import keep_found
from archiver.services.journal_entries import JournalEntries, tell
from archiver.services.rebuild_stretch import OBJECT_KINDS, Arrival, Outcome, Stretch, StretchReader
from archiver.services.replay import Reading, Replay, Replayed
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage
from archiver.store.journal import Tombstones
from archiver.store.listing import Listing, list_pack
from archiver.store.pack import Place

_STRETCH = 1_000  # objects that a process gets at a time
_HURRY = text("SET LOCAL synchronous_commit = off")  # a crash means to begin anew anyway
_ADD_PACK = text("""
    INSERT INTO packs (id, name, state, size_bytes, frames, sha256, sealed_at)
    VALUES (:id, :name, :state, :size, :frames, :sha256, CASE WHEN :state = 'sealed' THEN now() END)""")
_DROP_MESSAGES = text("DELETE FROM messages m WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)")
_DROP_PARTICIPANTS = text("DELETE FROM participants p WHERE NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = p.message_id)")
_DROP_OBJECTS = text("""
    DELETE FROM objects o WHERE kind = 'message' AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.sha256 = o.sha256)
    AND EXISTS (SELECT 1 FROM message_copies c WHERE c.deleted_sha256 = o.sha256)""")
_DROP_PARTS = text("""
    DELETE FROM objects o WHERE kind = 'part' AND NOT EXISTS (SELECT 1 FROM message_parts p WHERE p.part_sha256 = o.sha256)
    AND NOT EXISTS (SELECT 1 FROM objects u WHERE u.kind = 'message' AND NOT EXISTS (
        SELECT 1 FROM messages m WHERE m.sha256 = u.sha256))""")
_HOMELESS = text("""
    SELECT count(*) FROM message_copies c WHERE c.deleted_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM mailboxes m WHERE m.id = c.mailbox_id)""")
_ANNOUNCE = text("INSERT INTO outbox (id, queue, job, payload) VALUES (:id, 'indexing', 'reindex', '{}'::jsonb)")


Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


def rebuild(engine: Engine, archive: Archive, progress: Progress | None = None, *, processes: int | None = None) -> Replayed:
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
        self.result = Replayed()
        self.listings: dict[UUID, Listing] = {}
        self.journal = JournalEntries(archive, self.result.damage)
        self.reading = Reading()
        self.replaying: Future[None]
        self.postponed: list[tuple[Place, Arrival]] = []

    def run(self, progress: Progress) -> Replayed:
        packs = list(self.archive.backend.packs())
        for pack_id in packs:
            self._list(pack_id)
        reader = StretchReader(self._begin, self.archive, self.journal.occurrences())
        replay = Replay(self._begin, self.journal, self.reading, self.result)
        replay.damaged = {pack_id for pack_id in packs if pack_id not in self.listings or self.listings[pack_id].damage}
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
        self.result.unconfirmed = [described(one) for one in replay.burial.intended]
        with self.engine.begin() as connection:
            self._finish(connection)
        return self.result

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            connection.execute(_HURRY)
            yield connection

    def _finish(self, connection: Connection) -> None:
        self.result.found = keep_found(connection)
        for statement in (_DROP_MESSAGES, _DROP_PARTICIPANTS, _DROP_OBJECTS, _DROP_PARTS):
            connection.execute(statement)
        if homeless := connection.execute(_HOMELESS).scalar_one():
            self.result.damage.append(f"{homeless} copies are of a mailbox that is not there")
        rise_above(connection, self.journal.newest)
        connection.execute(_ANNOUNCE, {"id": uuid7()})
        self.result.messages = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()

    def _useful_processes(self) -> int:
        objects = sum(len(listing.entries) for listing in self.listings.values())
        return useful_processes(self.archive, objects // _STRETCH + 1, self.processes)

    def _list(self, pack_id: UUID) -> None:
        """What the pack holds, and where its journal frames are. Damage is told, whether the pack is sealed or not."""
        try:
            pack = self.archive.backend.open(pack_id)
            self.listings[pack_id] = listing = list_pack(pack, self.archive.frames)
        except Damage as damage:
            tell(self.result.damage, damage)
            return
        for found in listing.damage:
            tell(self.result.damage, found)
        self.journal.read(pack, listing.entries)

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
        listing = self.listings.get(pack_id)
        if listing is None:
            return []
        pack = self.archive.backend.open(pack_id)
        self.result.packs += 1
        with self.engine.begin() as connection:
            connection.execute(_ADD_PACK, pack_row(pack, listing))
        listed = [entry for entry in listing.entries if entry.kind in OBJECT_KINDS]
        found = []
        for start in range(0, max(1, len(listed)), _STRETCH):
            stop = min(start + _STRETCH, len(listed))
            found.append(Stretch(pack_id, start, stop, pack.size if stop == len(listed) else listed[stop].offset))
        return found

    def _take(self, outcome: Outcome) -> None:
        self.result.damage += [one for one in outcome.damage if one not in self.result.damage]
        self.postponed += outcome.postponed


def pack_row(pack: PackFile, listing: Listing) -> dict[str, Any]:
    """A damaged pack is left as it is: whoever appended to it would have to cut it first."""
    unsealed = PackState.LEFT if listing.damage else PackState.OPEN
    return {
        "id": pack.id,
        "name": pack.name,
        "state": PackState.SEALED if listing.seal else unsealed,
        "size": listing.end,
        "frames": len(listing.entries),
        "sha256": listing.seal.digest if listing.seal else None,
    }


def described(deletion: Tombstones) -> str:
    """A deletion that was never committed, for people."""
    when = f"{deletion.at:%Y-%m-%d %H:%M:%S}"
    return (
        f"{deletion.actor} began to delete {len(deletion.copies)} copies at {when} ({deletion.reason}); it was never finished"
    )
