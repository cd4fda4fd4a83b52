"""Retention labels: what people put on messages, for policies to refer to, or to keep a message until a date.

A label is defined by an administrator. Whoever may read a message can put one on it; a label that is locked stays there, and
its date can only be moved to a later one. Labels are in the packs: a rebuild restores them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import message_uuid
from archiver.db.states import UserRole
from archiver.errors import Conflict, NotAllowed, NotFound, UsageError
from archiver.queue.jobs import IndexEmailBatch
from archiver.retention import policies
from archiver.store.archive import Archive
from archiver.store.journal import LabelChange, LabelChanges
from archiver.sync import outbox
from archiver.sync.ingest import statements
from archiver.sync.ingest.archive_state import next_stamp

MAX_MESSAGES = 10_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)

_COLUMNS = "name, title, takes_date, hides_from_auditors, is_locked, created_by, created_at, retired_at"
_LIST = f"SELECT {_COLUMNS} FROM retention_labels WHERE :retired OR retired_at IS NULL ORDER BY name"  # noqa: S608
_LOAD = f"SELECT {_COLUMNS} FROM retention_labels WHERE name = :name"  # noqa: S608
_DEFINE = """
    INSERT INTO retention_labels (name, title, hides_from_auditors, is_locked, created_by)
    VALUES (:name, :title, :hides, :locks, :by)
    ON CONFLICT (name) DO UPDATE SET title = excluded.title, hides_from_auditors = excluded.hides_from_auditors,
        is_locked = excluded.is_locked, retired_at = NULL"""
_RETIRE = "UPDATE retention_labels SET retired_at = now() WHERE name = :name AND retired_at IS NULL"
_IN_USE = "SELECT EXISTS (SELECT 1 FROM message_labels WHERE label = :name)"
_COUNTS = "SELECT label AS name, count(*) AS messages FROM message_labels GROUP BY label"
_VISIBLE = "SELECT m.id, m.sha256 FROM messages m WHERE m.id = ANY(:ids::uuid[]) AND {seen} ORDER BY m.id"
_THERE = """
    SELECT message_id, keep_until, set_by_id, set_by FROM message_labels WHERE label = :label AND message_id = ANY(:ids::uuid[])
    ORDER BY message_id FOR UPDATE"""
_PUT = """
    INSERT INTO message_labels (message_id, label, keep_until, reason, set_by, set_by_id, set_at)
    SELECT unnest(:ids::uuid[]), :label, :until, :reason, :by, :by_id, :at
    ON CONFLICT (message_id, label) DO UPDATE SET keep_until = excluded.keep_until, reason = excluded.reason,
        set_by = excluded.set_by, set_by_id = excluded.set_by_id, set_at = excluded.set_at"""
_REMOVE = "DELETE FROM message_labels WHERE label = :label AND message_id = ANY(:ids::uuid[])"
_RAISE = """
    UPDATE messages SET index_version = index_version + 1
    FROM (SELECT id FROM messages WHERE id = ANY(:ids::uuid[]) ORDER BY id FOR NO KEY UPDATE) AS changed
    WHERE messages.id = changed.id"""
_OF_MESSAGES = """
    SELECT x.message_id, x.label AS name, l.title, x.keep_until, x.reason, x.set_by, x.set_at, l.is_locked
    FROM message_labels x JOIN retention_labels l ON l.name = x.label WHERE x.message_id = ANY(:ids::uuid[])
    ORDER BY x.message_id, l.title"""
_RESTORE = """
    INSERT INTO message_labels (message_id, label, keep_until, reason, set_by, set_by_id, set_at)
    SELECT m, l, u, r, :by, :by_id, :at FROM json_to_recordset(:rows::json) AS x(m uuid, l text, u timestamptz, r text)
    WHERE EXISTS (SELECT 1 FROM retention_labels k WHERE k.name = l) AND EXISTS (SELECT 1 FROM messages WHERE id = m)
    ON CONFLICT (message_id, label) DO UPDATE SET keep_until = excluded.keep_until, reason = excluded.reason,
        set_by = excluded.set_by, set_by_id = excluded.set_by_id, set_at = excluded.set_at"""
_RESTORE_REMOVAL = """
    DELETE FROM message_labels x USING json_to_recordset(:rows::json) AS r(m uuid, l text)
    WHERE x.message_id = r.m AND x.label = r.l"""


@dataclass(frozen=True, slots=True)
class RetentionLabel:
    name: str
    title: str
    takes_date: bool
    hides_from_auditors: bool
    is_locked: bool
    created_by: str
    created_at: datetime
    retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class LabelUse:
    name: str
    messages: int


@dataclass(frozen=True, slots=True)
class LabelOnMessage:
    message_id: UUID
    name: str
    title: str
    keep_until: datetime | None
    reason: str
    set_by: str
    set_at: datetime
    is_locked: bool


@dataclass(frozen=True, slots=True)
class LabelledBefore:
    message_id: UUID
    keep_until: datetime | None
    set_by_id: UUID | None
    set_by: str


@dataclass(frozen=True, slots=True)
class LabelTarget:
    id: UUID
    sha256: bytes


@dataclass(frozen=True, slots=True)
class LabelRequest:
    label: str
    message_ids: Sequence[UUID]
    keep_until: datetime | None = None
    reason: str = ""


# definitions


def list_labels(connection: Connection, *, retired: bool = False) -> list[RetentionLabel]:
    return sql.query(connection, _LIST, RetentionLabel, retired=retired)


def load_label(connection: Connection, name: str) -> RetentionLabel:
    found = sql.query_optional(connection, _LOAD, RetentionLabel, name=name.strip().lower())
    if found is None:
        raise NotFound(f"there is no retention label {name}")
    return found


def count_uses(connection: Connection) -> dict[str, int]:
    return {one.name: one.messages for one in sql.query(connection, _COUNTS, LabelUse)}


def define(
    connection: Connection, principal: Principal, name: str, title: str, *, hides: bool = False, locks: bool = False
) -> RetentionLabel:
    """A new label, or a change of one. A lock on a label that is in use can't be undone."""
    name, title = name.strip().lower(), " ".join(title.split())
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name}: the name of a retention label has lowercase letters, digits and dashes, such as invoice-8y")
    if not title or len(title) > 100:
        raise UsageError("a retention label needs a title (up to 100 characters)")
    before = sql.query_optional(connection, _LOAD, RetentionLabel, name=name)
    if before is not None and before.is_locked and not locks and sql.query_one(connection, _IN_USE, bool, name=name):
        raise Conflict(f"the label {name} is locked and in use: it can't be unlocked")
    sql.run(connection, _DEFINE, name=name, title=title, hides=hides, locks=locks, by=principal.name)
    audit.record(connection, principal, "label.defined", "label", name, title=title, hides_from_auditors=hides, is_locked=locks)
    return load_label(connection, name)


def retire(connection: Connection, principal: Principal, name: str) -> RetentionLabel:
    """It stays on its messages, and policies about it go on."""
    label = load_label(connection, name)
    if not sql.run(connection, _RETIRE, name=label.name):
        raise Conflict(f"the label {label.name} was retired already")
    audit.record(connection, principal, "label.retired", "label", label.name)
    return load_label(connection, label.name)


# on messages


@dataclass(frozen=True, slots=True)
class Labelling:
    """What one person does to the labels of messages that they can read."""

    engine: Engine
    archive: Archive
    principal: Principal
    scope: MailScope
    clock: datetime = field(default_factory=lambda: datetime.now(UTC))

    def put(self, request: LabelRequest) -> int:
        """In force when it returns. Returns on how many messages the label was not before, or with another date."""
        with self.engine.begin() as connection:
            label = self._begin(connection, request)
            if label.retired_at is not None:
                raise Conflict(f"the label {label.name} is retired: it can't be put on further messages")
            self._check_date(label, request.keep_until)
            connection.execute(policies.LOCK_ALL)  # deletions that began before have ended
            found = self._visible(connection, request)
            before = {one.message_id: one for one in self._there(connection, label, request)}
            for one in before.values():
                self._check_change(label, one, request.keep_until)
            new = [one for one in found if one.id not in before or before[one.id].keep_until != request.keep_until]
            if new:
                until, reason = request.keep_until, request.reason.strip()
                ids = sql.uuids(one.id for one in new)
                sql.run(connection, _PUT, ids=ids, label=label.name, until=until, reason=reason, **self._by())
                self._changed(connection, label, new, "label.put", keep_until=until, reason=reason)
                self._journal(connection, [LabelChange(one.sha256, label.name, False, until, reason) for one in new])
        return len(new)

    def remove(self, request: LabelRequest) -> int:
        with self.engine.begin() as connection:
            label = self._begin(connection, request)
            found = {one.id: one for one in self._visible(connection, request)}
            there = self._there(connection, label, request)
            if label.is_locked and there:
                raise Conflict(f"the label {label.name} is locked: it stays on a message")
            for one in there:
                self._check_owner(label, one)
            gone = [found[one.message_id] for one in there]
            if gone:
                sql.run(connection, _REMOVE, ids=sql.uuids(one.id for one in gone), label=label.name)
                self._changed(connection, label, gone, "label.removed")
        if gone:
            with self.engine.begin() as connection:
                self._journal(connection, [LabelChange(one.sha256, label.name, True) for one in gone])
        return len(gone)

    def _begin(self, connection: Connection, request: LabelRequest) -> RetentionLabel:
        self.principal.require(Right.LABEL)
        if not 0 < len(set(request.message_ids)) <= MAX_MESSAGES:
            raise UsageError(f"name up to {MAX_MESSAGES:,} messages")
        if len(request.reason) > 2_000:
            raise UsageError("a reason can have up to 2,000 characters")
        return load_label(connection, request.label)

    def _check_date(self, label: RetentionLabel, keep_until: datetime | None) -> None:
        if label.takes_date and keep_until is None:
            raise UsageError(f"the label {label.name} needs a date until which the message is kept")
        if keep_until is not None and not label.takes_date:
            raise UsageError(f"the label {label.name} takes no date")
        if keep_until is not None and not self.clock < keep_until < _LATEST:
            raise UsageError(f"{keep_until:%Y-%m-%d}: expected a date in the future, before {_LATEST:%Y}")

    def _check_change(self, label: RetentionLabel, before: LabelledBefore, keep_until: datetime | None) -> None:
        if before.keep_until is None or keep_until is None or keep_until >= before.keep_until:
            return
        if label.is_locked:
            raise Conflict(f"the label {label.name} is locked: {before.keep_until:%Y-%m-%d} can only be moved to a later date")
        self._check_owner(label, before)

    def _check_owner(self, label: RetentionLabel, before: LabelledBefore) -> None:
        is_own = before.set_by_id is not None and before.set_by_id == self.principal.user_id
        if not is_own and self.principal.role is not UserRole.ADMINISTRATOR:
            raise NotAllowed(f"{before.set_by} put the label {label.name} on this message: ask them, or an administrator")

    def _visible(self, connection: Connection, request: LabelRequest) -> list[LabelTarget]:
        wanted = set(request.message_ids)
        statement = _VISIBLE.format(seen=self.scope.messages("m"))
        found = sql.query(connection, statement, LabelTarget, ids=sql.uuids(wanted), **self.scope.values())
        if missing := next(iter(sorted(wanted - {one.id for one in found})), None):
            raise NotFound(f"there is no message {missing}")
        return found

    def _there(self, connection: Connection, label: RetentionLabel, request: LabelRequest) -> list[LabelledBefore]:
        return sql.query(connection, _THERE, LabelledBefore, label=label.name, ids=sql.uuids(set(request.message_ids)))

    def _by(self) -> dict[str, object]:
        return {"by": self.principal.name, "by_id": self.principal.user_id, "at": self.clock}

    def _changed(
        self, connection: Connection, label: RetentionLabel, those: list[LabelTarget], action: str, **detail: object
    ) -> None:
        sql.run(connection, _RAISE, ids=sql.uuids(one.id for one in those))
        outbox.announce(connection, IndexEmailBatch())
        first = [str(one.id) for one in those[:100]]
        audit.record(connection, self.principal, action, "label", label.name, messages=len(those), first=first, **detail)

    def _journal(self, connection: Connection, changes: list[LabelChange]) -> None:
        made = LabelChanges(self.clock, self.principal.name, self.principal.user_id, tuple(changes), next_stamp(connection))
        written = self.archive.append([made.record()])
        sql.run(connection, statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        statements.record_pack(connection, written)


def on_messages(connection: Connection, message_ids: Sequence[UUID]) -> list[LabelOnMessage]:
    return sql.query(connection, _OF_MESSAGES, LabelOnMessage, ids=sql.uuids(message_ids))


def restore_labels(connection: Connection, found: LabelChanges) -> None:
    """Repeats what a journal frame says."""
    rows = [
        {"m": message_uuid(one.sha256), "l": one.label, "u": one.keep_until, "r": one.reason}
        for one in found.changes
        if not one.is_removed
    ]
    gone = [{"m": message_uuid(one.sha256), "l": one.label} for one in found.changes if one.is_removed]
    if rows:
        sql.run(connection, _RESTORE, rows=sql.rows(rows), by=found.by, by_id=found.by_id, at=found.at)
    if gone:
        sql.run(connection, _RESTORE_REMOVAL, rows=sql.rows(gone))
