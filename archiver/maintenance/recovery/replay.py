"""Replays the journal of the packs, in the order in which it was written.

In a rebuild it runs behind the reading of the messages: Postgres adds copies while the next frames are read. An adoption
replays into a database that is in use, after all messages have been added.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.date_range import archivable
from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7
from archiver.maintenance.recovery.journal_entries import JournalEntries, JournalEntry
from archiver.maintenance.recovery.origins import add_origin
from archiver.maintenance.snapshot import restore_config
from archiver.retention.burial import Burial
from archiver.retention.labels import restore_labels
from archiver.store.frames import FrameKind
from archiver.store.journal import Changes, OccurrenceBatch, Origin, Tombstones
from archiver.store.pack import PackLocation
from archiver.sync.ingest import statements
from archiver.sync.ingest.plan import DeletedContent
from archiver.sync.ingest.provider_keys import version_key

# For a batch whose worker was killed before it committed: the resumed run finds its copies known, although it archived them.
_COUNT_FOR_RUN = """
    UPDATE sync_session_mailboxes SET seen = seen + :n, archived = archived + :n, bytes = bytes + (
        SELECT coalesce(sum(m.size_bytes), 0) FROM message_copies c JOIN messages m ON m.id = c.message_id
        WHERE c.mailbox_id = :mailbox_id AND c.provider_key = ANY(:keys))
    WHERE session_id = :run_id AND mailbox_id = :mailbox_id"""
_ADD_COPIES = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder, flags, labels, received_at, recipients,
        run_id, created_at)
    SELECT i, x.m, :mailbox_id, k, f, g, l, r, e, :run_id, :at
    FROM json_to_recordset(:rows::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz, e text[])
    JOIN messages ON messages.id = x.m
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING provider_key"""
_MISSING = """
    SELECT k FROM json_to_recordset(:rows::json) AS x(m uuid, k text)
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = x.m)"""
_FIND_COPIES = """
    SELECT c.id, c.provider_key, coalesce(m.sha256, c.deleted_sha256) AS sha256
    FROM json_to_recordset(:rows::json) AS x(k text)
    JOIN message_copies c ON c.mailbox_id = :mailbox_id AND c.provider_key = x.k
    LEFT JOIN messages m ON m.id = c.message_id"""
IN_MAILBOX = """
    SELECT x.h FROM json_to_recordset(:rows::json) AS x(m uuid, h text) WHERE EXISTS (
        SELECT 1 FROM message_copies c WHERE c.mailbox_id = :mailbox_id AND c.message_id = x.m) OR EXISTS (
        SELECT 1 FROM message_copies c WHERE c.mailbox_id = :mailbox_id AND c.deleted_sha256 = decode(x.h, 'hex'))"""
_RENAME_HOLDER = """
    UPDATE message_copies SET provider_key = :key WHERE id = :id AND NOT EXISTS (
        SELECT 1 FROM message_copies WHERE mailbox_id = :mailbox_id AND provider_key = :key) RETURNING 1"""


@dataclass(slots=True)
class Replayed:
    packs: int = 0
    messages: int = 0
    copies: int = 0
    deleted_copies: int = 0
    lost_copies: int = 0
    """Copies whose message is in no pack."""
    unfinished_copies: int = 0
    """Copies of batches that were never completed, and so never counted."""
    found: int = 0
    """Messages whose mailbox is in no readable journal frame: they are in a mailbox of their own."""
    conflicts: int = 0
    """Different bytes under the same key, such as those of a batch that was rolled back and fetched again: both are kept."""
    unconfirmed: list[str] = field(default_factory=list)
    """Deletions that were intended but never committed: they are not applied."""
    damage: list[str] = field(default_factory=list)


Begin = Callable[[], AbstractContextManager[Connection]]
"""Starts a transaction for a step, or returns the one that all steps share."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CopyHolder:
    """The copy that a key belongs to, and the bytes that were archived under it."""

    id: UUID
    provider_key: str
    sha256: bytes | None


class ReplayStopped(Exception):
    """Reading the packs failed."""


class ReplayProgress:
    """How far the messages of the packs are in Postgres, for the thread that replays the journal."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._ends: dict[UUID, int] = {}
        self._is_over = self._has_failed = False

    def advance(self, pack_id: UUID, end: int) -> None:
        with self._moved:
            self._ends[pack_id] = end
            self._moved.notify_all()

    def finish(self, *, failed: bool) -> None:
        with self._moved:
            self._is_over, self._has_failed = True, failed
            self._moved.notify_all()

    def wait_for(self, place: PackLocation) -> None:
        """Waits until the frames before this place are read."""
        self._wait(lambda: self._is_over or self._ends.get(place.pack_id, 0) > place.offset)

    def wait_for_all(self) -> bool:
        """Returns whether it had to wait."""
        before = self._is_over
        self._wait(lambda: self._is_over)
        return not before

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._moved:
            self._moved.wait_for(condition)
            if self._has_failed:
                raise ReplayStopped


class Replay:
    def __init__(
        self, begin: Begin, journal: JournalEntries, reading: ReplayProgress, result: Replayed, *, is_rebuild: bool = True
    ) -> None:
        self.begin = begin
        self.journal = journal
        self.entries = journal.in_order()
        self.reading = reading
        self.result = result
        self.is_rebuild = is_rebuild
        self.damaged: Collection[UUID] = ()
        """Packs in which frames are missing."""
        self.mailboxes: set[UUID] = set()
        self.burial = Burial(self._read_tombstones())

    def run(self) -> None:
        self._config()
        for entry in self.entries:
            if entry.kind not in (FrameKind.OCCURRENCE, FrameKind.COPY_CHANGE):
                continue
            self.reading.wait_for(entry.places[-1])
            decoded = self.journal.decode(entry)
            if isinstance(decoded, OccurrenceBatch):
                self._copies(entry, decoded)
            elif isinstance(decoded, Changes) and entry.is_new:
                self._changes(decoded)
        self.reading.wait_for_all()
        self._labels()
        with self.begin() as connection:
            self.result.deleted_copies += self.burial.carry_out(connection)

    def _read_tombstones(self) -> list[Tombstones]:
        kinds = (FrameKind.TOMBSTONE, FrameKind.TOMBSTONE_CONFIRMED)
        decoded = (self.journal.decode(entry) for entry in self.entries if entry.kind in kinds)
        return [deletion for deletion in decoded if deletion is not None]

    def _config(self) -> None:
        """First of all, because it has the current names and settings."""
        newest = next((entry for entry in reversed(self.entries) if entry.kind is FrameKind.CONFIG and entry.is_new), None)
        config = self.journal.decode(newest) if newest else None
        if config is not None:
            with self.begin() as connection:
                restore_config(connection, config)

    def _labels(self) -> None:
        """In order: the last one counts."""
        for entry in self.entries:
            changes = self.journal.decode(entry) if entry.kind is FrameKind.MESSAGE_LABELS and entry.is_new else None
            if changes is not None:
                with self.begin() as connection:
                    restore_labels(connection, changes)

    def _copies(self, entry: JournalEntry, batch: OccurrenceBatch) -> None:
        rows = [
            {
                "i": uuid7(),
                "m": message_uuid(copy.sha256),
                "k": copy.provider_key,
                "f": copy.folder,
                "g": copy.flags,
                "l": copy.labels,
                "r": archivable(copy.received_at),
                "e": copy.recipients,
                "h": copy.sha256.hex(),
            }
            for copy in sorted(batch.copies, key=lambda copy: copy.provider_key)
        ]
        missing = self._add_copies(entry, batch, rows)
        if missing and self.reading.wait_for_all():  # they may be in a pack that was not read yet
            missing = self._add_copies(entry, batch, missing)
        for row in missing:
            if self.burial.covers(batch.origin.mailbox_id, row["m"]):
                self.burial.remember(batch.origin.mailbox_id, row)
            elif entry.is_new and (entry.is_finished or any(place.pack_id in self.damaged for place in entry.places)):
                self.result.lost_copies += 1
            else:
                self.result.unfinished_copies += 1

    def _add_copies(self, entry: JournalEntry, batch: OccurrenceBatch, rows: list[Row]) -> list[Row]:
        """Returns the rows whose message is missing."""
        with self.begin() as connection:
            mailbox_id = self._add_origin(connection, batch.origin)
            with sql.Pipeline(connection, mailbox_id=mailbox_id, run_id=batch.run_id, at=batch.at) as pipeline:
                if not entry.is_new:
                    known = set(pipeline.ask(IN_MAILBOX, str, rows=sql.rows(rows)))
                    rows = [row for row in rows if row["h"] not in known]
                if not self.is_rebuild:
                    rows = self._not_deleted(pipeline, rows)
                return self._insert(pipeline, rows)

    def _insert(self, pipeline: sql.Pipeline, rows: list[Row]) -> list[Row]:
        added = set(pipeline.ask(_ADD_COPIES, str, rows=sql.rows(rows)))
        self.result.copies += len(added)
        if added and not self.is_rebuild:
            pipeline.send(_COUNT_FOR_RUN, n=len(added), keys=sorted(added))
        left = [row for row in rows if row["k"] not in added]
        if not left:
            return []
        missing = set(pipeline.ask(_MISSING, str, rows=sql.rows(left)))
        self._settle(pipeline, [row for row in left if row["k"] not in missing])
        return [row for row in left if row["k"] in missing]

    def _not_deleted(self, pipeline: sql.Pipeline, rows: list[Row]) -> list[Row]:
        """What was deleted in this mailbox stays deleted under these keys as well."""
        hashes = sql.hashes(bytes.fromhex(row["h"]) for row in rows)
        deleted = pipeline.ask(statements.FIND_DELETED, DeletedContent, hashes=hashes)
        reasons = {one.deleted_sha256.hex(): one.deleted_reason for one in deleted}
        dead = [{**row, "w": reasons[row["h"]]} for row in rows if row["h"] in reasons]
        if dead:
            self.result.deleted_copies += len(pipeline.ask(statements.ADD_DELETED_COPIES, str, rows=sql.rows(dead)))
        return [row for row in rows if row["h"] not in reasons]

    def _settle(self, pipeline: sql.Pipeline, rows: list[Row]) -> None:
        """Rows whose key is taken: by the same bytes, which is nothing new, or by others. Then both are kept, as in ingestion.

        In a rebuild the later one gets the key: it was free when that was archived, so the earlier batch was never committed.
        In a database that is in use, the existing row keeps its key.
        """
        taken = {copy.provider_key: copy for copy in pipeline.ask(_FIND_COPIES, CopyHolder, rows=sql.rows(rows))}
        for row in rows:
            holder = taken[row["k"]]
            if holder.sha256 is None or holder.sha256.hex() == row["h"]:
                continue
            self.result.conflicts += 1
            freed: list[int] = []
            if self.is_rebuild:
                freed = pipeline.ask(_RENAME_HOLDER, int, id=holder.id, key=version_key(row["k"], holder.sha256))
            key = row["k"] if freed else version_key(row["k"], bytes.fromhex(row["h"]))
            self.result.copies += len(pipeline.ask(_ADD_COPIES, str, rows=sql.rows([{**row, "k": key}])))

    def _changes(self, batch: Changes) -> None:
        rows = [
            {
                "kind": change.kind,
                "key": change.provider_key,
                "folder": change.folder,
                "flags": change.flags,
                "labels": change.labels,
                "new_key": change.new_provider_key,
            }
            for change in batch.changes
        ]
        self.burial.change(batch.origin.mailbox_id, batch.changes)
        with self.begin() as connection:
            mailbox_id = self._add_origin(connection, batch.origin)
            sql.run(connection, statements.CHANGE_COPIES, rows=sql.rows(rows), mailbox_id=mailbox_id, at=batch.at)

    def _add_origin(self, connection: Connection, origin: Origin) -> UUID:
        if origin.mailbox_id not in self.mailboxes:
            add_origin(connection, origin)
            self.mailboxes.add(origin.mailbox_id)
        return origin.mailbox_id
