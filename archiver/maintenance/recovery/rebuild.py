"""Fills an empty Postgres from the packs alone: sources (without credentials), mailboxes, messages, copies, changes, deletions.

First the journal of all packs is scanned. Then several processes read frames into `objects` and `messages`, pack by pack, while
a thread replays the journal behind them, in the order in which it was written; then the tombstones are applied, and messages
without a copy are removed. A message that no journal frame names gets a mailbox of its own. Batches that a crash left
uncommitted are added as well: a rebuild finds more than before, never less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db.states import PackState
from archiver.errors import UsageError
from archiver.maintenance.process_pool import MAX_PROCESSES, useful_processes, workers
from archiver.maintenance.recovery.found_mail import add_found
from archiver.maintenance.recovery.journal_entries import JournalEntries, add_damage
from archiver.maintenance.recovery.rebuild_segment import OBJECT_KINDS, Arrival, RebuildOutcome, RebuildSegment, SegmentReader
from archiver.maintenance.recovery.replay import Replay, Replayed, ReplayProgress
from archiver.quantity import quantity
from archiver.queue.jobs import ReindexJob
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.errors import Damage
from archiver.store.journal import Tombstones
from archiver.store.listing import PackListing, list_pack
from archiver.store.pack import PackLocation
from archiver.sync import outbox
from archiver.sync.ingest.archive_state import rise_above

_SEGMENT = 1_000  # objects in a task
_ASYNC_COMMIT = text("SET LOCAL synchronous_commit = off")  # after a crash, the rebuild starts again anyway
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
_WITHOUT_MAILBOX = text("""
    SELECT count(*) FROM message_copies c WHERE c.deleted_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM mailboxes m WHERE m.id = c.mailbox_id)""")


Progress = Callable[[int, int], None]
"""(packs done, packs in total)"""


def rebuild(engine: Engine, archive: Archive, progress: Progress | None = None, *, processes: int | None = None) -> Replayed:
    """`processes`: the number of readers; by default, as many as are useful on this machine."""
    with engine.connect() as connection:
        filled = connection.execute(text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")).scalar_one()
    if filled:
        raise UsageError(
            "rebuild needs an empty database, and this one has messages or packs: use another database or data folder"
        )
    return _Rebuild(engine, archive, processes).run(progress or (lambda done, total: None))


class _Rebuild:
    def __init__(self, engine: Engine, archive: Archive, processes: int | None) -> None:
        self.engine = engine
        self.archive = archive
        self.processes = processes
        self.result = Replayed()
        self.listings: dict[UUID, PackListing] = {}
        self.journal = JournalEntries(archive, self.result.damage)
        self.reading = ReplayProgress()
        self.replaying: Future[None]
        self.postponed: list[tuple[PackLocation, Arrival]] = []

    def run(self, progress: Progress) -> Replayed:
        packs = list(self.archive.backend.packs())
        for pack_id in packs:
            self._list(pack_id)
        reader = SegmentReader(self._begin, self.archive, self.journal.occurrences())
        replay = Replay(self._begin, self.journal, self.reading, self.result)
        replay.damaged = {pack_id for pack_id in packs if pack_id not in self.listings or self.listings[pack_id].damage}
        reading = workers(self.engine, reader.read, self._useful_processes(), "run the command again with an empty database")
        with reading as read, ThreadPoolExecutor(1, "replay") as replayer:
            self.replaying = replayer.submit(replay.run)
            try:
                self._read_packs(packs, read, progress)
                self._take(reader.read_postponed(self.postponed))
            except BaseException:
                self.reading.finish(failed=True)
                raise
            self.reading.finish(failed=False)
            self.replaying.result()
        self.result.unconfirmed = [describe_deletion(deletion) for deletion in replay.burial.intended]
        with self.engine.begin() as connection:
            self._finish(connection)
        return self.result

    @contextmanager
    def _begin(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            connection.execute(_ASYNC_COMMIT)
            yield connection

    def _finish(self, connection: Connection) -> None:
        self.result.found = add_found(connection)
        for statement in (_DROP_MESSAGES, _DROP_PARTICIPANTS, _DROP_OBJECTS, _DROP_PARTS):
            connection.execute(statement)
        if orphans := connection.execute(_WITHOUT_MAILBOX).scalar_one():
            self.result.damage.append(f"{quantity(orphans, 'copy')} of mailboxes that do not exist")
        rise_above(connection, self.journal.newest)
        outbox.announce(connection, ReindexJob())
        self.result.messages = connection.execute(text("SELECT count(*) FROM messages")).scalar_one()

    def _useful_processes(self) -> int:
        objects = sum(len(listing.entries) for listing in self.listings.values())
        return useful_processes(self.archive, objects // _SEGMENT + 1, self.processes)

    def _list(self, pack_id: UUID) -> None:
        """Lists the pack's frames and its journal. Damage is reported whether the pack is sealed or not."""
        try:
            pack = self.archive.backend.open(pack_id)
            self.listings[pack_id] = listing = list_pack(pack, self.archive.frames)
        except Damage as damage:
            add_damage(self.result.damage, damage)
            return
        for found in listing.damage:
            add_damage(self.result.damage, found)
        self.journal.read(pack, listing.entries)

    def _read_packs(
        self, packs: list[UUID], read: Callable[[RebuildSegment], Future[RebuildOutcome]], progress: Progress
    ) -> None:
        """Keeps several segments in progress; their results are collected in order."""
        pending: deque[tuple[RebuildSegment, int, Future[RebuildOutcome]]] = deque()

        def finish(limit: int) -> None:
            while len(pending) > limit:
                segment, packs_done, outcome = pending.popleft()
                self._take(outcome.result())
                self.reading.advance(segment.pack_id, segment.end)
                progress(packs_done, len(packs))
                if self.replaying.done():
                    self.replaying.result()  # raises what stopped it

        for number, pack_id in enumerate(packs):
            segments = self._segments(pack_id)
            for segment in segments:
                pending.append((segment, number + (segment is segments[-1]), read(segment)))
                finish(2 * MAX_PROCESSES)
        finish(0)

    def _segments(self, pack_id: UUID) -> list[RebuildSegment]:
        listing = self.listings.get(pack_id)
        if listing is None:
            return []
        pack = self.archive.backend.open(pack_id)
        self.result.packs += 1
        with self.engine.begin() as connection:
            connection.execute(_ADD_PACK, pack_row(pack, listing))
        listed = [entry for entry in listing.entries if entry.kind in OBJECT_KINDS]
        found = []
        for start in range(0, max(1, len(listed)), _SEGMENT):
            stop = min(start + _SEGMENT, len(listed))
            found.append(RebuildSegment(pack_id, start, stop, pack.size if stop == len(listed) else listed[stop].offset))
        return found

    def _take(self, outcome: RebuildOutcome) -> None:
        self.result.damage += [line for line in outcome.damage if line not in self.result.damage]
        self.postponed += outcome.postponed


def pack_row(pack: PackFile, listing: PackListing) -> dict[str, Any]:
    """A damaged pack is left unchanged: appending to it would require truncating it first."""
    unsealed = PackState.LEFT if listing.damage else PackState.OPEN
    return {
        "id": pack.id,
        "name": pack.name,
        "state": PackState.SEALED if listing.seal else unsealed,
        "size": listing.end,
        "frames": len(listing.entries),
        "sha256": listing.seal.digest if listing.seal else None,
    }


def describe_deletion(deletion: Tombstones) -> str:
    """A deletion that was never committed, for the report."""
    when = f"{deletion.at:%Y-%m-%d %H:%M:%S}"
    copies = quantity(len(deletion.copies), "copy")
    return f"{deletion.actor} started to delete {copies} at {when} ({deletion.reason}), but the deletion was never finished"
