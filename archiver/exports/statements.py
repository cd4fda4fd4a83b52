"""The SQL of exports: requests, the frozen selection, and what is known about each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.access.scope import MailScope
from archiver.db.values import json_text

_FREEZE = """
    INSERT INTO export_messages (export_id, message_id, size_bytes, mailbox_id, folder, sort_at)
    SELECT :export_id, m.id, m.size_bytes, c.mailbox_id, c.folder, m.sort_at
    FROM messages m, LATERAL (
        SELECT c.mailbox_id, c.folder FROM message_copies c WHERE c.message_id = m.id AND {seen}{folder}
        ORDER BY c.mailbox_id, c.folder, c.id LIMIT 1) AS c
    WHERE {which} ON CONFLICT DO NOTHING"""
_NUMBER = text("""
    UPDATE export_messages e SET number = x.number FROM (
        SELECT message_id, row_number() OVER (ORDER BY mailbox_id, folder, sort_at, message_id) - 1 AS number
        FROM export_messages WHERE export_id = :export_id) AS x
    WHERE e.export_id = :export_id AND e.message_id = x.message_id""")
_TOTAL = text(
    "SELECT count(*) AS messages, coalesce(sum(size_bytes), 0) AS bytes FROM export_messages WHERE export_id = :export_id"
)
# The first copy is the one whose place the message was numbered by.
_PART = """
    SELECT e.message_id AS id, encode(m.sha256, 'hex') AS sha256, m.size_bytes AS bytes, m.sort_at AS date,
        m.internet_message_id AS message_id, m.sender AS "from", m.subject, k.copies
    FROM export_messages e LEFT JOIN messages m ON m.id = e.message_id LEFT JOIN LATERAL (
        SELECT json_agg(json_build_object('mailbox', b.address, 'folder', c.folder, 'flags', c.flags, 'labels', c.labels,
                'received_at', c.received_at, 'gone_at', c.gone_at)
            ORDER BY (c.mailbox_id = e.mailbox_id AND c.folder IS NOT DISTINCT FROM e.folder) DESC, b.address, c.folder, c.id)
            AS copies
        FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE c.message_id = e.message_id AND {seen}) AS k ON true
    WHERE e.export_id = :export_id AND e.number >= :first AND e.number < :end ORDER BY e.number"""


def freeze(connection: Connection, export_id: UUID, scope: MailScope, which: str, values: dict[str, Any]) -> None:
    folder = " AND c.folder = :folder" if "folder" in values else ""
    statement = text(_FREEZE.format(seen=scope.copies(), folder=folder, which=which))
    connection.execute(statement, {"export_id": export_id, **values, **scope.values()})


def unfreeze(connection: Connection, export_id: UUID) -> None:
    connection.execute(text("DELETE FROM export_messages WHERE export_id = :id"), {"id": export_id})


def number_frozen(connection: Connection, export_id: UUID) -> tuple[int, int]:
    """Messages and bytes, once all are frozen."""
    connection.execute(_NUMBER, {"export_id": export_id})
    row = connection.execute(_TOTAL, {"export_id": export_id}).one()
    return int(row.messages), int(row.bytes)


def load_part(connection: Connection, export_id: UUID, scope: MailScope, first: int, end: int) -> Sequence[Any]:
    statement = text(_PART.format(seen=scope.copies()))
    return (
        connection.execute(statement, {"export_id": export_id, "first": first, "end": end, **scope.values()}).mappings().all()
    )


def stored_bytes(connection: Connection, user_id: UUID | None) -> int:
    """Total size of the mail in one user's exports."""
    statement = text("SELECT coalesce(sum(bytes), 0) FROM exports WHERE user_id = :user_id AND state = 'done'")
    return int(connection.execute(statement, {"user_id": user_id}).scalar_one())


def set_running(connection: Connection, export_id: UUID, scope: MailScope) -> None:
    noted = {"mailboxes": None if scope.mailboxes is None else [str(one) for one in sorted(scope.mailboxes)]}
    statement = text("UPDATE exports SET state = 'running', scope = CAST(:scope AS jsonb) WHERE id = :id")
    connection.execute(statement, {"id": export_id, "scope": json_text(noted)})


def set_failed(connection: Connection, export_id: UUID, days: int) -> None:
    statement = text("""
        UPDATE exports e SET state = 'failed', finished_at = now(), expires_at = now() + make_interval(days => :days),
            error = coalesce((SELECT r.error FROM workflow_runs r WHERE r.id = e.id), 'cancelled')
        WHERE id = :id AND state IN ('queued', 'running')""")
    connection.execute(statement, {"id": export_id, "days": days})


def set_done(connection: Connection, export_id: UUID, values: dict[str, Any], files: list[dict[str, Any]]) -> None:
    statement = text("""
        UPDATE exports SET state = 'done', messages = :messages, bytes = :bytes, failed = :failed, finished_at = now(),
            expires_at = now() + make_interval(days => :days), files = CAST(:files AS jsonb) WHERE id = :id""")
    connection.execute(statement, {"id": export_id, **values, "files": json_text(files)})
