"""Splitting a conversation that was wrongly joined, and joining it again.

The decision is about messages, by their Message-IDs, and outlasts everything that is derived from it: rethreading, rebuild from
the packs, and answers that arrive later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import Conflict, NotFound
from archiver.indexing import jobs as index_jobs
from archiver.indexing.rows import ThreadMember
from archiver.indexing.thread_splits import regroup
from archiver.indexing.threads import ADD_MEMBERS, hold_threads_alone, join_threads
from archiver.mail.thread_groups import Key, hash_key, own_key, parents_of

_MOST_MESSAGES = 20_000
_COLUMNS = """m.id, m.thread_id, m.internet_message_id, m.in_reply_to, m.reference_ids, m.subject, m.sort_at,
    ARRAY[]::uuid[] AS mailboxes"""
_MESSAGE = f"SELECT {_COLUMNS} FROM messages m WHERE m.id = :id AND {{seen}}"  # noqa: S608
_CONVERSATION = f"""
    SELECT {_COLUMNS} FROM messages m WHERE m.thread_id = :thread ORDER BY m.sort_at, m.id LIMIT :limit"""  # noqa: S608
_ADD = """
    INSERT INTO thread_splits (id, message_id, created_by, created_by_id, created_at)
    VALUES (:id, :message_id, :by, :user_id, :at)"""
_SPLITS = """
    SELECT s.id, s.message_id, s.created_by, s.created_at FROM thread_splits s JOIN thread_split_members m ON m.split_id = s.id
    WHERE m.key = :key::uuid AND s.undone_at IS NULL ORDER BY s.created_at DESC, s.id DESC LIMIT 1"""
_UNDO = "UPDATE thread_splits SET undone_at = :at, undone_by = :by WHERE id = :id AND undone_at IS NULL"


@dataclass(frozen=True, slots=True)
class ConversationSplit:
    """A decision that is in force."""

    id: UUID
    message_id: UUID
    """The first message of the part that was split off."""
    created_by: str
    created_at: datetime


def split(connection: Connection, principal: Principal, scope: MailScope, message_id: UUID) -> int:
    """From this message on, with everything that answers to it, it becomes a conversation of its own, for all readers.

    The number of messages that were split off. The caller stores the configuration afterwards.
    """
    message = _find(connection, principal, scope, message_id)
    if message.thread_id is None:
        raise Conflict("this message is not in a conversation yet: it is still waiting to be indexed")
    hold_threads_alone(connection)
    listed = sql.query(connection, _CONVERSATION, ThreadMember, thread=message.thread_id, limit=_MOST_MESSAGES + 1)
    if len(listed) > _MOST_MESSAGES:
        raise Conflict(f"this conversation has more than {_MOST_MESSAGES:,} messages, which is too many to split it")
    part = _answers(listed, own_key(message))
    if len(part) == len({own_key(one) for one in listed}):
        raise Conflict("the whole conversation begins with this message: choose a later one to split it")
    split_id = uuid7()
    by = {"by": principal.name, "user_id": principal.user_id, "at": datetime.now(UTC)}
    sql.run(connection, _ADD, id=split_id, message_id=message_id, **by)
    sql.run(connection, ADD_MEMBERS, rows=sql.rows([{"s": split_id, "k": key} for key in sorted(part)]))
    regroup(connection, [message.thread_id], limit=_MOST_MESSAGES)
    index_jobs.announce_once(connection, index_jobs.BODY)
    moved = sum(own_key(one) in part for one in listed)
    audit.record(connection, principal, "conversation.split", "message", message_id, messages=moved)
    return moved


def rejoin(connection: Connection, principal: Principal, scope: MailScope, message_id: UUID) -> None:
    """Undoes the last split that this message is part of: the rules decide again where the messages belong."""
    message = _find(connection, principal, scope, message_id)
    hold_threads_alone(connection)
    found = split_of(connection, message.id, message.internet_message_id)
    if found is None or message.thread_id is None:
        raise Conflict("this message was not split from a conversation")
    sql.run(connection, _UNDO, id=found.id, at=datetime.now(UTC), by=principal.name)
    listed = sql.query(connection, _CONVERSATION, ThreadMember, thread=message.thread_id, limit=_MOST_MESSAGES)
    join_threads(connection, listed)
    index_jobs.announce_once(connection, index_jobs.BODY)
    audit.record(connection, principal, "conversation.rejoined", "message", message_id, messages=len(listed))


def split_of(connection: Connection, message_id: UUID, internet_message_id: str | None) -> ConversationSplit | None:
    """The last split that this message is part of."""
    key = hash_key(internet_message_id) if internet_message_id else message_id.hex
    return sql.query_optional(connection, _SPLITS, ConversationSplit, key=key)


def _find(connection: Connection, principal: Principal, scope: MailScope, message_id: UUID) -> ThreadMember:
    """All readers see the result, so only an administrator who can read the message may do this."""
    principal.require(Right.ADMIN)
    statement = _MESSAGE.format(seen=scope.messages())
    found = sql.query_optional(connection, statement, ThreadMember, id=message_id, **scope.values())
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    return found


def _answers(listed: Sequence[ThreadMember], first: Key) -> set[Key]:
    """The message with this key, and everything that answers to it, directly or not."""
    children: dict[Key, list[Key]] = {}
    for one in listed:
        for parent in parents_of(one):
            children.setdefault(hash_key(parent), []).append(own_key(one))
    found, waiting = {first}, [first]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
