"""What happened to the copies, again: the journal of the packs, in the order in which it was written.

It runs beside the reading of the messages and follows it: Postgres adds copies while we are busy with the next frames.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.date_range import archivable
from archiver.models.ids import message_uuid, uuid7
from archiver.services import batch_sql as sql
from archiver.services.rebuild_stretch import HURRY
from archiver.services.snapshot import restore_config
from archiver.store.frames import Kind
from archiver.store.journal import Changes, Occurrences, Origin, Stamp, Tombstones
from archiver.store.pack import Place
from archiver.sync import mailboxes

_ADD_SOURCE = text("""
    INSERT INTO ingestion_sources (id, kind, name, status, status_message)
    VALUES (:id, :kind, :name, 'paused', 'Rebuilt from the packs: enter its credentials again, then resume it.')
    ON CONFLICT (id) DO NOTHING""")
_SOURCE_NAME = text("SELECT 1 FROM ingestion_sources WHERE lower(name) = lower(:name) AND id <> :id AND removed_at IS NULL")
_ADD_MAILBOX = text("""
    INSERT INTO mailboxes (id, source_id, address, display_name, provider_id, replaces_id)
    VALUES (:id, :source_id, :address, :display_name, :provider_id, :replaces) ON CONFLICT DO NOTHING""")
_AT_THAT_ADDRESS = text("""
    SELECT id FROM mailboxes WHERE source_id = :source_id AND lower(address) = lower(:address) AND id <> :id
        AND NOT EXISTS (SELECT 1 FROM mailboxes WHERE id = :id)""")
_ADD_COPIES = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder, flags, labels, received_at, run_id,
        created_at)
    SELECT i, x.m, %(mailbox_id)s, k, f, g, l, r, %(run_id)s, %(at)s
    FROM json_to_recordset(%(rows)s::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz)
    JOIN messages ON messages.id = x.m
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING message_id"""
_MISSING = """
    SELECT m, k FROM json_to_recordset(%(rows)s::json) AS x(m uuid, k text)
    WHERE NOT EXISTS (SELECT 1 FROM messages WHERE messages.id = x.m)"""
# A copy whose message was compacted away has no row yet: without one, the next sync would bring it back.
_BURY = """
    INSERT INTO message_copies (id, mailbox_id, provider_key, folder, flags, labels, received_at, created_at, deleted_at,
        deleted_reason)
    SELECT i, m, k, coalesce(f, ''), coalesce(g, '{}'), coalesce(l, '{}'), r, %(at)s, %(at)s, %(reason)s
    FROM json_to_recordset(%(rows)s::json) AS x(i uuid, m uuid, k text, f text, g text[], l text[], r timestamptz)
    JOIN mailboxes ON mailboxes.id = m
    ON CONFLICT (mailbox_id, provider_key) DO UPDATE
    SET deleted_at = coalesce(message_copies.deleted_at, excluded.deleted_at), deleted_reason = excluded.deleted_reason
    RETURNING 1"""


@dataclass(slots=True)
class Rebuilt:
    packs: int = 0
    messages: int = 0
    copies: int = 0
    deleted_copies: int = 0
    lost_copies: int = 0
    """Copies whose message is in no pack any more."""
    damage: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """A journal frame, and where it stands among the others."""

    stamp: Stamp
    at: datetime
    kind: Kind
    place: Place

    @property
    def order(self) -> tuple[Stamp, datetime, UUID, int]:
        return self.stamp, self.at, self.place.pack_id, self.place.offset


Decode = Callable[[Place, Kind], Any]
"""A journal frame, decoded; None if it is damaged."""


class Stopped(Exception):
    """The reading failed."""


class Reading:
    """How far the messages of the packs are in Postgres, for the one who follows."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._ends: dict[UUID, int] = {}
        self._is_over = self._has_failed = False

    def reached(self, pack_id: UUID, end: int) -> None:
        with self._moved:
            self._ends[pack_id] = end
            self._moved.notify_all()

    def finish(self, *, failed: bool) -> None:
        with self._moved:
            self._is_over, self._has_failed = True, failed
            self._moved.notify_all()

    def wait_for(self, place: Place) -> None:
        """Until the frames before this place are read."""
        self._wait(lambda: self._is_over or self._ends.get(place.pack_id, 0) > place.offset)

    def wait_for_all(self) -> bool:
        """Whether there was anything to wait for."""
        before = self._is_over
        self._wait(lambda: self._is_over)
        return not before

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._moved:
            self._moved.wait_for(condition)
            if self._has_failed:
                raise Stopped


class Replay:
    def __init__(self, engine: Engine, journal: list[Entry], decode: Decode, reading: Reading, result: Rebuilt) -> None:
        self.engine = engine
        self.journal = sorted(journal, key=lambda entry: entry.order)
        self.decode = decode
        self.reading = reading
        self.result = result
        self.mailboxes: set[UUID] = set()
        self.buried: set[tuple[UUID, UUID]] = set()
        """Mailbox and message of each deleted copy."""
        self.graves: dict[tuple[UUID, str], dict[str, Any]] = {}
        """What is known of deleted copies whose message is gone."""

    def run(self) -> None:
        tombstones = self._read_tombstones()
        self._config()
        for entry in self.journal:
            if entry.kind not in (Kind.OCCURRENCE, Kind.COPY_CHANGE):
                continue
            self.reading.wait_for(entry.place)
            decoded = self.decode(entry.place, entry.kind)
            if isinstance(decoded, Occurrences):
                self._copies(decoded)
            elif isinstance(decoded, Changes):
                self._changes(decoded)
        self.reading.wait_for_all()
        for buried in tombstones:
            self._bury(buried)

    def _config(self) -> None:
        """First of all, as it knows the names and settings of today."""
        newest = next((entry for entry in reversed(self.journal) if entry.kind is Kind.CONFIG), None)
        config = self.decode(newest.place, Kind.CONFIG) if newest else None
        if config is not None:
            with self.engine.begin() as connection:
                restore_config(connection, config)

    def _read_tombstones(self) -> list[Tombstones]:
        entries_ = [entry for entry in self.journal if entry.kind is Kind.TOMBSTONE]
        found = [item for item in (self.decode(entry.place, entry.kind) for entry in entries_) if item is not None]
        for buried in found:
            for mailbox_id, _, sha256 in buried.copies:
                self.buried.add((mailbox_id, message_uuid(sha256)))
        return found

    def _copies(self, batch: Occurrences) -> None:
        rows = [
            {
                "i": uuid7(),
                "m": message_uuid(copy.sha256),
                "k": copy.provider_key,
                "f": copy.folder,
                "g": copy.flags,
                "l": copy.labels,
                "r": archivable(copy.received_at),
            }
            for copy in sorted(batch.copies, key=lambda copy: copy.provider_key)
        ]
        missing = self._add_copies(batch, rows)
        if missing and self.reading.wait_for_all():  # they may lie in a pack that was not read yet
            missing = self._add_copies(batch, rows)
        mailbox_id = batch.origin.mailbox_id
        for row in missing:
            if (mailbox_id, row.m) not in self.buried:
                self.result.lost_copies += 1
            else:
                self.graves[mailbox_id, row.k] = next(item for item in rows if item["k"] == row.k)

    def _add_copies(self, batch: Occurrences, rows: list[dict[str, Any]]) -> list[Any]:
        """Those whose message is not there."""
        with self.engine.begin() as connection:
            connection.execute(HURRY)
            mailbox_id = self._add_origin(connection, batch.origin)
            with sql.Pipeline(connection, mailbox_id=mailbox_id, run_id=batch.run_id, at=batch.at) as pipeline:
                added = pipeline.ask(_ADD_COPIES, rows=sql.rows(rows))
                self.result.copies += len(added)
                return pipeline.ask(_MISSING, rows=sql.rows(rows)) if len(added) < len(rows) else []

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
        with self.engine.begin() as connection:
            mailbox_id = self._add_origin(connection, batch.origin)
            sql.run(connection, sql.CHANGE_COPIES, rows=sql.rows(rows), mailbox_id=mailbox_id, at=batch.at)

    def _add_origin(self, connection: Connection, origin: Origin) -> UUID:
        if origin.mailbox_id not in self.mailboxes:
            _add_origin(connection, origin)
            self.mailboxes.add(origin.mailbox_id)
        return origin.mailbox_id

    def _bury(self, buried: Tombstones) -> None:
        rows = [
            {**self.graves.get((mailbox_id, key), {}), "i": uuid7(), "m": mailbox_id, "k": key}
            for mailbox_id, key, _ in sorted(buried.copies)
        ]
        with self.engine.begin() as connection:
            done = sql.run(connection, _BURY, rows=sql.rows(rows), at=buried.at, reason=buried.reason)
        self.result.deleted_copies += len(done)


def _add_origin(connection: Connection, origin: Origin) -> None:
    """Ids are those of before; a name that is taken gets the end of the id behind it."""
    name = origin.source_name
    if connection.execute(_SOURCE_NAME, {"name": name, "id": origin.source_id}).one_or_none():
        name = f"{name} ({str(origin.source_id)[-12:]})"
    connection.execute(_ADD_SOURCE, {"id": origin.source_id, "kind": origin.source_kind, "name": name})
    values = {
        "id": origin.mailbox_id,
        "source_id": origin.source_id,
        "address": origin.address,
        "display_name": origin.display_name,
        "provider_id": origin.provider_id,
    }
    before = connection.execute(_AT_THAT_ADDRESS, values).scalar()
    if before is not None:  # the address went from one mailbox to another; the journal tells the later one later
        mailboxes.retire(connection, [before])
    connection.execute(_ADD_MAILBOX, {**values, "replaces": before})
