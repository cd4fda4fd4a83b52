"""Threads as one reader sees them: joined by what is visible alone, and named after the smallest message in them.

`messages.thread_id` joins all mail of the archive. That it puts two messages together may be the work of a third one, of which
this reader must not learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.services.access import Scope
from archiver.services.threads import grouped

# Whoever waits for its turn in the index belongs to no thread yet, also if others have the same message for long.
_VISIBLE = """
    SELECT m.id, m.thread_id, m.internet_message_id, m.in_reply_to, m.reference_ids, m.subject, m.sort_at,
        ARRAY(SELECT c.mailbox_id FROM message_copies c WHERE c.message_id = m.id AND {copies}) AS mailboxes
    FROM messages m WHERE m.thread_id = ANY(:threads) AND {messages} AND ({state}) <> 'pending'"""
_THREAD = "SELECT m.thread_id FROM messages m WHERE m.id = :id AND {messages}"
_PEOPLE = text("""
    SELECT message_id, array_agg(address) AS people FROM participants
    WHERE message_id = ANY(:ids) AND address <> '' GROUP BY message_id""")


@dataclass(frozen=True, slots=True)
class Conversation:
    thread_id: UUID | None
    """The thread of the whole archive that it is a part of; None: the message is in no thread yet."""
    members: tuple[UUID, ...]
    is_whole: bool
    """All that is visible of that thread."""

    @property
    def name(self) -> UUID | None:
        return min(self.members) if self.thread_id else None


def conversation(connection: Connection, scope: Scope, message_id: UUID) -> Conversation | None:
    """That of a message. None: the scope does not see it."""
    statement = text(_THREAD.format(messages=scope.messages()))
    row = connection.execute(statement, {"id": message_id, **scope.values()}).first()
    if row is None:
        return None
    found = _conversations(connection, scope, {row.thread_id} - {None})
    return found.get(message_id) or Conversation(None, (message_id,), is_whole=True)


def names(connection: Connection, scope: Scope, rows: Iterable[tuple[UUID, UUID | None]]) -> dict[UUID, UUID | None]:
    """By message: the thread that this reader is shown. The rows are messages with their threads of the whole archive."""
    given = list(rows)
    if scope.mailboxes is None:
        return dict(given)
    found = _conversations(connection, scope, {thread for _, thread in given if thread is not None})
    return {message: found[message].name if message in found else None for message, _ in given}


def _conversations(connection: Connection, scope: Scope, threads: Iterable[UUID]) -> dict[UUID, Conversation]:
    wanted = sorted(threads)
    if not wanted:
        return {}
    parts = {"copies": scope.copies("c"), "messages": scope.messages(), "state": scope.search_state()}
    rows = connection.execute(text(_VISIBLE.format(**parts)), {"threads": wanted, **scope.values()}).all()
    by_thread: dict[UUID, list[Any]] = {}
    for row in rows:
        by_thread.setdefault(row.thread_id, []).append(row)
    found: dict[UUID, Conversation] = {}
    for thread, those in by_thread.items():
        for group in grouped(those, lambda ids: _people(connection, ids)):
            made = Conversation(thread, tuple(group), is_whole=len(group) == len(those))
            found |= dict.fromkeys(group, made)
    return found


def _people(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, frozenset[str]]:
    return {row.message_id: frozenset(row.people) for row in connection.execute(_PEOPLE, {"ids": list(ids)})}
