"""Changes of many messages at once: tags, notes and deletions, with progress, and with undo where that is possible.

A change is a row with one item for each message. An item is carried out once, however often a worker starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID, uuid5

from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import Conflict, NotFound, UsageError
from archiver.marks import notes, tags
from archiver.retention.delete import Deleted, Deletion, confirm
from archiver.store.archive import Archive

DIRECT = 1_000
"""So many messages are changed in the request itself; a worker changes more than these, and deletes."""
PORTION = 1_000
_UNDO_FOR = timedelta(days=1)


class ChangeAction(StrEnum):
    TAG = "tag"
    UNTAG = "untag"
    NOTE = "note"
    SHARED_NOTE = "shared_note"
    DELETE = "delete"


UNDOABLE = frozenset(ChangeAction) - {ChangeAction.DELETE}
RIGHTS = {action: Right.ADMIN if action is ChangeAction.DELETE else Right.MARK for action in ChangeAction}

_ADD = """
    INSERT INTO mail_changes (id, owner_id, action, subject, tag_id) VALUES (:id, :owner_id, :action, :subject, :tag_id)"""
_COLUMNS = "id, owner_id, action, subject, tag_id, chosen, changed, refused, error, created_at, finished_at, undone_at"
_LOAD = f"SELECT {_COLUMNS} FROM mail_changes WHERE id = :id AND owner_id = :owner_id"  # noqa: S608
_FORGET = "DELETE FROM mail_changes WHERE owner_id = :owner_id AND finished_at < :before"
_ADD_ITEMS = """
    INSERT INTO mail_change_items (change_id, message_id) SELECT :id, m.id FROM messages m
    WHERE {which} AND {seen} ON CONFLICT DO NOTHING"""
_COUNT_ITEMS = "UPDATE mail_changes SET chosen = (SELECT count(*) FROM mail_change_items WHERE change_id = :id) WHERE id = :id"
_NEXT = "SELECT message_id FROM mail_change_items WHERE change_id = :id AND NOT is_done ORDER BY message_id LIMIT :limit"
_TAG = """
    INSERT INTO message_tags (tag_id, message_id) SELECT :tag_id, m.id FROM messages m
    WHERE m.id = ANY(CAST(:ids AS uuid[])) AND {seen} ORDER BY m.id ON CONFLICT DO NOTHING RETURNING message_id"""
_UNTAG = "DELETE FROM message_tags WHERE tag_id = :tag_id AND message_id = ANY(CAST(:ids AS uuid[])) RETURNING message_id"
_NOTE = """
    INSERT INTO notes (id, message_id, owner_id, author, text, is_shared)
    SELECT x.i, x.m, :owner_id, :author, :text, :is_shared FROM json_to_recordset(CAST(:rows AS json)) AS x(i uuid, m uuid)
    JOIN messages m ON m.id = x.m WHERE {seen} ON CONFLICT DO NOTHING RETURNING message_id"""
_COPIES = """
    SELECT c.id FROM message_copies c WHERE c.message_id = ANY(CAST(:ids AS uuid[])) AND {seen} ORDER BY c.id"""
_DONE = """
    UPDATE mail_change_items SET is_done = true, is_changed = message_id = ANY(CAST(:changed AS uuid[]))
    WHERE change_id = :id AND message_id = ANY(CAST(:ids AS uuid[]))"""
_PROGRESS = """
    SELECT count(*) FILTER (WHERE is_done) AS done, count(*) FILTER (WHERE is_changed) AS changed, count(*) AS chosen
    FROM mail_change_items WHERE change_id = :id"""
_FINISH = """
    UPDATE mail_changes SET finished_at = :at, changed = (
        SELECT count(*) FROM mail_change_items WHERE change_id = :id AND is_changed) WHERE id = :id"""
_REFUSED = "UPDATE mail_changes SET refused = refused + :count WHERE id = :id"
_FAIL = "UPDATE mail_changes SET error = :error, finished_at = :at WHERE id = :id AND finished_at IS NULL"
_CHANGED_IDS = "SELECT message_id FROM mail_change_items WHERE change_id = :id AND is_changed"
_UNDO_TAG = f"DELETE FROM message_tags WHERE tag_id = :tag_id AND message_id IN ({_CHANGED_IDS})"  # noqa: S608
_UNDO_UNTAG = f"""
    INSERT INTO message_tags (tag_id, message_id)
    SELECT t.id, x.message_id FROM tags t, ({_CHANGED_IDS}) AS x WHERE t.id = :tag_id ON CONFLICT DO NOTHING"""  # noqa: S608
_UNDO_NOTE = "DELETE FROM notes WHERE id = ANY(CAST(:note_ids AS uuid[])) AND owner_id = :owner_id"
_UNDONE = "UPDATE mail_changes SET undone_at = :at WHERE id = :id AND undone_at IS NULL"


@dataclass(frozen=True, slots=True)
class MailChange:
    id: UUID
    owner_id: UUID
    action: str
    subject: str
    tag_id: UUID | None
    chosen: int
    changed: int
    refused: int
    """Messages that a hold or a policy keeps."""
    error: str | None
    created_at: datetime
    finished_at: datetime | None
    undone_at: datetime | None

    @property
    def can_be_undone(self) -> bool:
        is_done = self.finished_at is not None and self.undone_at is None and self.changed > 0
        return is_done and ChangeAction(self.action) in UNDOABLE and datetime.now(UTC) - self.created_at < _UNDO_FOR


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    done: int
    changed: int
    chosen: int


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What to do with the messages. `subject` is the name of the tag, the text of the note, or the reason."""

    action: ChangeAction
    subject: str
    is_shared: bool = False


def begin(connection: Connection, principal: Principal, request: ChangeRequest) -> MailChange:
    """The row of a change without its messages. Raises UsageError for a bad name, text or reason."""
    principal.require(RIGHTS[request.action])
    if principal.user_id is None:
        raise UsageError("only users can change several messages at once")
    subject, tag_id = request.subject.strip(), None
    if request.action in (ChangeAction.TAG, ChangeAction.UNTAG):
        subject = tags.clean_name(subject)
        tag_id = tags.find_or_add(connection, principal, subject, is_shared=request.is_shared)
    elif request.action is ChangeAction.DELETE:
        if not subject or len(subject) > 2_000:
            raise UsageError("a deletion needs a reason (up to 2,000 characters)")
    else:
        subject = notes.clean_text(subject)
    now, change_id = datetime.now(UTC), uuid7()
    sql.run(connection, _FORGET, owner_id=principal.user_id, before=now - 2 * _UNDO_FOR)
    values = {"action": request.action.value, "subject": subject, "tag_id": tag_id}
    sql.run(connection, _ADD, id=change_id, owner_id=principal.user_id, **values)
    return load(connection, principal, change_id)


def load(connection: Connection, principal: Principal, change_id: UUID) -> MailChange:
    """Only the caller's own."""
    found = sql.query_optional(connection, _LOAD, MailChange, id=change_id, owner_id=principal.user_id)
    if found is None:
        raise NotFound(f"there is no change {change_id}")
    return found


def progress(connection: Connection, change: MailChange) -> ChangeProgress:
    return sql.query_one(connection, _PROGRESS, ChangeProgress, id=change.id)


def choose(connection: Connection, change_id: UUID, scope: MailScope, message_ids: Sequence[UUID] | None) -> int:
    """Adds messages to a change, as far as they are visible; None: all. The number of those that were added."""
    which, values = (
        ("true", {}) if message_ids is None else ("m.id = ANY(CAST(:ids AS uuid[]))", {"ids": sql.uuids(message_ids)})
    )
    statement = _ADD_ITEMS.format(which=which, seen=scope.messages())
    return sql.run(connection, statement, id=change_id, **values, **scope.values())


def count_chosen(connection: Connection, change_id: UUID) -> None:
    sql.run(connection, _COUNT_ITEMS, id=change_id)


def carry_out_portion(connection: Connection, principal: Principal, change: MailChange, scope: MailScope) -> int:
    """The next messages of a change that is not a deletion; how many they were."""
    ids = sql.query(connection, _NEXT, UUID, id=change.id, limit=PORTION)
    if ids:
        changed = _apply(connection, principal, change, scope, ids)
        sql.run(connection, _DONE, id=change.id, ids=sql.uuids(ids), changed=sql.uuids(changed))
    return len(ids)


def _apply(
    connection: Connection, principal: Principal, change: MailChange, scope: MailScope, ids: Sequence[UUID]
) -> list[UUID]:
    """The messages that are different now."""
    seen = scope.messages()
    match ChangeAction(change.action):
        case ChangeAction.TAG:
            values = {"tag_id": change.tag_id, "ids": sql.uuids(ids)}
            return sql.query(connection, _TAG.format(seen=seen), UUID, **values, **scope.values())
        case ChangeAction.UNTAG:
            return sql.query(connection, _UNTAG, UUID, tag_id=change.tag_id, ids=sql.uuids(ids))
        case ChangeAction.NOTE | ChangeAction.SHARED_NOTE:
            rows = sql.rows([{"i": note_id(change, one), "m": one} for one in ids])
            is_shared = change.action == ChangeAction.SHARED_NOTE
            by = {"owner_id": change.owner_id, "author": principal.name, "text": change.subject}
            return sql.query(connection, _NOTE.format(seen=seen), UUID, rows=rows, is_shared=is_shared, **by, **scope.values())
        case ChangeAction.DELETE:
            raise UsageError("a deletion is carried out by a worker")


def note_id(change: MailChange, message_id: UUID) -> UUID:
    """The same one if a worker starts again."""
    return uuid5(change.id, str(message_id))


def delete_portion(engine: Engine, archive: Archive, principal: Principal, change: MailChange, scope: MailScope) -> int:
    """The next messages of a deletion: the copies that the user can see. What is on hold, or kept by a policy, stays."""
    with engine.connect() as connection:
        ids = sql.query(connection, _NEXT, UUID, id=change.id, limit=PORTION)
        copies = sql.query(connection, _COPIES.format(seen=scope.copies()), UUID, ids=sql.uuids(ids), **scope.values())
    if not ids:
        return 0
    with engine.begin() as connection:
        deletion = Deletion(connection, engine, archive, change.subject, principal)
        done = deletion.delete(copies) if copies else Deleted()
        kept = {unit.message_id for unit in deletion.kept}
        changed = [one for one in ids if one not in kept]
        sql.run(connection, _DONE, id=change.id, ids=sql.uuids(ids), changed=sql.uuids(changed))
        sql.run(connection, _REFUSED, id=change.id, count=len(kept))
        values = {"reason": change.subject, "copies": done.copies, "messages": [str(one) for one in changed]}
        if done.copies:
            audit.record(connection, principal, "message.deleted", "change", change.id, **values)
    confirm(engine, archive)
    return len(ids)


def finish(connection: Connection, principal: Principal, change: MailChange) -> None:
    """The caller stores the configuration afterwards."""
    sql.run(connection, _FINISH, id=change.id, at=datetime.now(UTC))
    done = progress(connection, change)
    values = {"messages": done.changed, **({"tag": change.subject} if change.tag_id else {})}
    match ChangeAction(change.action):
        case ChangeAction.TAG:
            audit.record(connection, principal, "message.tagged", "change", change.id, **values)
        case ChangeAction.UNTAG:
            audit.record(connection, principal, "message.untagged", "change", change.id, **values)
        case ChangeAction.DELETE:
            audit.record(connection, principal, "message.deletion_done", "change", change.id, **values)
        case _:
            audit.record(connection, principal, "note.added", "change", change.id, **values)


def fail(connection: Connection, change_id: UUID, error: str) -> None:
    sql.run(connection, _FAIL, id=change_id, error=error, at=datetime.now(UTC))


def change_now(
    connection: Connection, principal: Principal, scope: MailScope, request: ChangeRequest, message_ids: Sequence[UUID]
) -> MailChange:
    """A few messages, in one transaction. The caller stores the configuration afterwards."""
    if not message_ids or len(message_ids) > DIRECT:
        raise UsageError(f"select 1 to {DIRECT:,} messages")
    change = begin(connection, principal, request)
    if not choose(connection, change.id, scope, message_ids):
        raise NotFound(f"there is no message {message_ids[0]}")
    count_chosen(connection, change.id)
    while carry_out_portion(connection, principal, change, scope):
        pass
    finish(connection, principal, change)
    return load(connection, principal, change.id)


def undo(connection: Connection, principal: Principal, change_id: UUID) -> MailChange:
    """Takes back what this change has changed, and nothing that was like that before. The caller stores the configuration."""
    change = load(connection, principal, change_id)
    if not change.can_be_undone:
        raise Conflict("this can't be undone, or not any more")
    if not sql.run(connection, _UNDONE, id=change.id, at=datetime.now(UTC)):
        raise Conflict("this was undone already")
    match ChangeAction(change.action):
        case ChangeAction.TAG:
            sql.run(connection, _UNDO_TAG, id=change.id, tag_id=change.tag_id)
        case ChangeAction.UNTAG:
            sql.run(connection, _UNDO_UNTAG, id=change.id, tag_id=change.tag_id)
        case _:
            ids = [note_id(change, one) for one in sql.query(connection, _CHANGED_IDS, UUID, id=change.id)]
            sql.run(connection, _UNDO_NOTE, note_ids=sql.uuids(ids), owner_id=change.owner_id)
    audit.record(connection, principal, "change.undone", "change", change.id, what=change.action, messages=change.changed)
    return load(connection, principal, change_id)
