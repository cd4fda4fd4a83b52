"""The SQL of exports: requests, the frozen selection, and what is known about each message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.poison_rows import UNREADABLE, PoisonRow, one_by_one
from archiver.db.sql import query, query_one, run
from archiver.db.values import json_text

_FREEZE = """
    INSERT INTO export_messages (export_id, message_id, size_bytes, mailbox_id, folder, sort_at)
    SELECT :export_id, m.id, m.size_bytes, c.mailbox_id, c.folder, m.sort_at
    FROM messages m, LATERAL (
        SELECT c.mailbox_id, c.folder FROM message_copies c WHERE c.message_id = m.id AND {seen}{folder}
        ORDER BY c.mailbox_id, c.folder, c.id LIMIT 1) AS c
    WHERE {which} ON CONFLICT DO NOTHING"""
_UNFREEZE = "DELETE FROM export_messages WHERE export_id = :id"
_NUMBER = """
    UPDATE export_messages e SET number = x.number FROM (
        SELECT message_id, row_number() OVER (ORDER BY mailbox_id, folder, sort_at, message_id) - 1 AS number
        FROM export_messages WHERE export_id = :export_id) AS x
    WHERE e.export_id = :export_id AND e.message_id = x.message_id"""
_TOTAL = """
    SELECT count(*) AS messages, CAST(coalesce(sum(size_bytes), 0) AS bigint) AS bytes FROM export_messages
    WHERE export_id = :export_id"""
_IDS = """
    SELECT message_id FROM export_messages WHERE export_id = :export_id AND number >= :first AND number < :end
    ORDER BY number"""
# The first copy is the one whose place the message was numbered by.
_PART = """
    SELECT e.message_id AS id, encode(m.sha256, 'hex') AS sha256, m.size_bytes AS bytes, m.sort_at AS date,
        m.internet_message_id AS message_id, m.sender, m.subject, k.copies
    FROM export_messages e LEFT JOIN messages m ON m.id = e.message_id LEFT JOIN LATERAL (
        SELECT json_agg(json_build_object('mailbox', b.address, 'folder', c.folder, 'flags', c.flags, 'labels', c.labels,
                'received_at', c.received_at, 'gone_at', c.gone_at)
            ORDER BY (c.mailbox_id = e.mailbox_id AND c.folder IS NOT DISTINCT FROM e.folder) DESC, b.address, c.folder, c.id)
            AS copies
        FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE c.message_id = e.message_id AND {seen}) AS k ON true
    WHERE e.export_id = :export_id AND {which} ORDER BY e.number"""
_STORED_BYTES = "SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM exports WHERE user_id = :user_id AND state = 'done'"
_SET_RUNNING = "UPDATE exports SET state = 'running', scope = CAST(:scope AS jsonb) WHERE id = :id"
_SET_FAILED = """
    UPDATE exports e SET state = 'failed', finished_at = now(), expires_at = now() + make_interval(days => :days),
        error = coalesce((SELECT r.error FROM workflow_runs r WHERE r.id = e.id), 'cancelled')
    WHERE id = :id AND state IN ('queued', 'running')"""
_SET_DONE = """
    UPDATE exports SET state = 'done', messages = :messages, bytes = :bytes, failed = :failed, finished_at = now(),
        expires_at = now() + make_interval(days => :days), files = CAST(:files AS jsonb) WHERE id = :id"""


@dataclass(frozen=True, slots=True)
class FrozenTotal:
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FrozenMessage:
    """One message of a frozen selection. Without a hash it was deleted since; without copies its owner can't read it now."""

    id: UUID
    sha256: str | None
    bytes: int | None
    date: datetime | None
    message_id: str | None
    sender: str | None
    subject: str | None
    copies: list[dict[str, Any]] | None


def freeze(connection: Connection, export_id: UUID, scope: MailScope, which: str, values: dict[str, Any]) -> None:
    folder = " AND c.folder = :folder" if "folder" in values else ""
    statement = _FREEZE.format(seen=scope.copies(), folder=folder, which=which)
    run(connection, statement, export_id=export_id, **values, **scope.values())


def unfreeze(connection: Connection, export_id: UUID) -> None:
    run(connection, _UNFREEZE, id=export_id)


def number_frozen(connection: Connection, export_id: UUID) -> FrozenTotal:
    """Once all are frozen."""
    run(connection, _NUMBER, export_id=export_id)
    return query_one(connection, _TOTAL, FrozenTotal, export_id=export_id)


def load_part(
    connection: Connection, export_id: UUID, scope: MailScope, first: int, end: int
) -> tuple[list[FrozenMessage], list[PoisonRow]]:
    """The messages with these numbers, and those whose rows can't be read."""
    values = {"export_id": export_id, **scope.values()}
    place = {"first": first, "end": end}
    try:
        return _load(connection, scope, "e.number >= :first AND e.number < :end", {**values, **place}), []
    except UNREADABLE:
        ids = query(connection, _IDS, UUID, export_id=export_id, **place)
    alone = "e.message_id = :id"
    return one_by_one([(one, 0) for one in ids], lambda one: _load(connection, scope, alone, {**values, "id": one}))


def _load(connection: Connection, scope: MailScope, which: str, values: dict[str, Any]) -> list[FrozenMessage]:
    return query(connection, _PART.format(seen=scope.copies(), which=which), FrozenMessage, **values)


def stored_bytes(connection: Connection, user_id: UUID | None) -> int:
    """Total size of the mail in one user's exports."""
    return query_one(connection, _STORED_BYTES, int, user_id=user_id)


def set_running(connection: Connection, export_id: UUID, scope: MailScope) -> None:
    noted = {"mailboxes": None if scope.mailboxes is None else [str(one) for one in sorted(scope.mailboxes)]}
    run(connection, _SET_RUNNING, id=export_id, scope=json_text(noted))


def set_failed(connection: Connection, export_id: UUID, days: int) -> None:
    run(connection, _SET_FAILED, id=export_id, days=days)


def set_done(connection: Connection, export_id: UUID, values: dict[str, Any], files: list[dict[str, Any]]) -> None:
    run(connection, _SET_DONE, id=export_id, **values, files=json_text(files))
