"""Notes on messages: for their author alone, or for everyone who can read the message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import NotFound, UsageError

MAX_CHARS = 10_000
MAX_NOTES = 1_000
"""On one message."""

_VISIBLE = "(n.is_shared OR n.owner_id = CAST(:reader AS uuid))"
_ON_MESSAGE = f"""
    SELECT n.id, n.message_id, n.author, n.text, n.is_shared, n.owner_id IS NOT DISTINCT FROM CAST(:reader AS uuid) AS is_mine,
        n.created_at, n.updated_at
    FROM notes n WHERE n.message_id = :id AND {_VISIBLE} ORDER BY n.created_at, n.id"""  # noqa: S608
_SEEN = "SELECT 1 FROM messages m WHERE m.id = :id AND {seen}"
_ADD = """
    INSERT INTO notes (id, message_id, owner_id, author, text, is_shared)
    VALUES (:id, :message_id, :owner_id, :author, :text, :is_shared)"""
_CHANGE = """
    UPDATE notes SET text = :text, is_shared = :is_shared, updated_at = :at
    WHERE id = :id AND message_id = :message_id AND owner_id = :owner_id"""
_REMOVE = "DELETE FROM notes n WHERE n.id = :id AND n.message_id = :message_id AND ({who})"


@dataclass(frozen=True, slots=True)
class MessageNote:
    id: UUID
    message_id: UUID
    author: str
    text: str
    is_shared: bool
    is_mine: bool
    created_at: datetime
    updated_at: datetime | None


def clean_text(text: str) -> str:
    found = text.replace("\r\n", "\n").replace("\0", "").strip()
    if not found or len(found) > MAX_CHARS:
        raise UsageError(f"a note has 1 to {MAX_CHARS:,} characters")
    return found


def notes_on(connection: Connection, scope: MailScope, message_id: UUID) -> list[MessageNote]:
    """The caller has checked that the message is visible."""
    return sql.query(connection, _ON_MESSAGE, MessageNote, id=message_id, reader=scope.reader)


def add(
    connection: Connection, principal: Principal, scope: MailScope, message_id: UUID, text: str, *, is_shared: bool
) -> UUID:
    principal.require(Right.MARK)
    text = clean_text(text)
    require_visible(connection, scope, message_id)
    if len(notes_on(connection, scope, message_id)) >= MAX_NOTES:
        raise UsageError(f"there are already {MAX_NOTES} notes on this message")
    note_id = uuid7()
    values = {"owner_id": principal.user_id, "author": principal.name, "text": text, "is_shared": is_shared}
    sql.run(connection, _ADD, id=note_id, message_id=message_id, **values)
    audit.record(connection, principal, "note.added", "message", message_id, shared=is_shared)
    return note_id


def change(
    connection: Connection,
    principal: Principal,
    scope: MailScope,
    message_id: UUID,
    note_id: UUID,
    text: str,
    *,
    is_shared: bool,
) -> None:
    """Only by its author."""
    principal.require(Right.MARK)
    text = clean_text(text)
    require_visible(connection, scope, message_id)
    values = {"id": note_id, "message_id": message_id, "owner_id": principal.user_id}
    if not sql.run(connection, _CHANGE, text=text, is_shared=is_shared, at=datetime.now(UTC), **values):
        raise NotFound(f"there is no note {note_id} of yours on this message")
    audit.record(connection, principal, "note.changed", "message", message_id, shared=is_shared)


def remove(connection: Connection, principal: Principal, scope: MailScope, message_id: UUID, note_id: UUID) -> None:
    """By its author; a shared one also by an administrator."""
    principal.require(Right.MARK)
    require_visible(connection, scope, message_id)
    who = "n.owner_id = :reader" + (" OR n.is_shared" if Right.ADMIN in principal.rights else "")
    statement = _REMOVE.format(who=who)
    if not sql.run(connection, statement, id=note_id, message_id=message_id, reader=principal.user_id):
        raise NotFound(f"there is no note {note_id} of yours on this message")
    audit.record(connection, principal, "note.removed", "message", message_id)


def require_visible(connection: Connection, scope: MailScope, message_id: UUID) -> None:
    if not sql.query(connection, _SEEN.format(seen=scope.messages()), int, id=message_id, **scope.values()):
        raise NotFound(f"there is no message {message_id}")
