"""Threads as one reader sees them: joined only by visible messages, and named after the smallest message id.

`messages.thread_id` joins all mail of the archive. Two messages may be joined only through a third one, which this reader must
not learn of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query, query_optional
from archiver.mail.thread_groups import group_messages
from archiver.mail.threads import Correspondents
from archiver.search.thread_decisions import load_decisions

MOST_COUNTED = 200
"""Messages of a conversation that a list counts; a longer one has "more than" this many."""
MOST_PEOPLE = 200
"""Of one message, who may show that a reply belongs to it: a mail may name a hundred thousand."""

# A message that waits to be indexed belongs to no thread yet, even if other mailboxes have had it for long.
_VISIBLE = """
    SELECT m.id, m.thread_id, m.internet_message_id, m.in_reply_to, m.reference_ids, m.subject, m.sort_at,
        ARRAY(SELECT c.mailbox_id FROM message_copies c WHERE c.message_id = m.id AND {copies}) AS mailboxes
    FROM messages m WHERE m.thread_id = ANY(:threads) AND {messages} AND ({state}) <> 'pending'"""
_CORRESPONDENTS = """
    SELECT message_id, role IN ('to', 'cc', 'bcc') AS is_recipient, array_agg(address) AS addresses FROM participants
    WHERE message_id = ANY(:ids) AND address <> '' AND position < :people GROUP BY 1, 2"""
# The newest messages of each conversation: variants of one mail count once.
_NEWEST = """
    SELECT m.thread_id AS conversation, m.id, m.canonical_sha256, m.sender, m.sender_name
    FROM unnest(CAST(:threads AS uuid[])) AS t(id), LATERAL (
        SELECT n.thread_id, n.id, n.canonical_sha256, n.sender, n.sender_name, n.sort_at FROM messages n
        WHERE n.thread_id = t.id AND {messages} ORDER BY n.sort_at DESC, n.id DESC LIMIT :limit) AS m
    ORDER BY m.sort_at, m.id"""
_MEMBERS = """
    SELECT x.conversation, m.id, m.canonical_sha256, m.sender, m.sender_name
    FROM unnest(CAST(:ids AS uuid[]), CAST(:names AS uuid[])) AS x(id, conversation) JOIN messages m ON m.id = x.id
    ORDER BY m.sort_at, m.id"""
_THREAD = "SELECT m.thread_id FROM messages m WHERE m.id = :id AND {messages}"


@dataclass(frozen=True, slots=True)
class MessageThread:
    thread_id: UUID | None


@dataclass(frozen=True, slots=True)
class VisibleMember:
    """A message of a thread, with the mailboxes in which the reader sees it."""

    id: UUID
    thread_id: UUID
    internet_message_id: str | None
    in_reply_to: str | None
    reference_ids: list[str]
    subject: str | None
    sort_at: datetime
    mailboxes: list[UUID]


@dataclass(frozen=True, slots=True)
class MessagePeople:
    message_id: UUID
    is_recipient: bool
    addresses: list[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    thread_id: UUID | None
    """The archive-wide thread that it is part of; None if the message is in no thread yet."""
    members: tuple[UUID, ...]
    is_whole: bool
    """The visible messages of that thread."""

    @property
    def name(self) -> UUID | None:
        return min(self.members) if self.thread_id else None


@dataclass(frozen=True, slots=True)
class ConversationMember:
    conversation: UUID
    id: UUID
    canonical_sha256: bytes
    sender: str | None
    sender_name: str | None


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a list shows of a conversation."""

    id: UUID
    """The thread id that this reader sees."""
    messages: int
    """That this reader sees, up to MOST_COUNTED."""
    people: tuple[str, ...]
    """Who wrote them, in the order of their first message."""


def conversation(connection: Connection, scope: MailScope, message_id: UUID) -> Conversation | None:
    """The conversation of a message; None if the scope does not see it."""
    statement = _THREAD.format(messages=scope.messages())
    row = query_optional(connection, statement, MessageThread, id=message_id, **scope.values())
    if row is None:
        return None
    found = _conversations(connection, scope, [row.thread_id] if row.thread_id else [])
    return found.get(message_id) or Conversation(None, (message_id,), is_whole=True)


def names(connection: Connection, scope: MailScope, rows: Iterable[tuple[UUID, UUID | None]]) -> dict[UUID, UUID | None]:
    """By message: the thread id that this reader sees. The rows are messages with their archive-wide threads."""
    given = list(rows)
    if scope.mailboxes is None:
        return dict(given)
    found = _conversations(connection, scope, {thread for _, thread in given if thread is not None})
    return {message: found[message].name if message in found else None for message, _ in given}


def summaries(
    connection: Connection, scope: MailScope, rows: Iterable[tuple[UUID, UUID | None]]
) -> dict[UUID, ConversationSummary]:
    """By message: the conversation that it is part of. The rows are messages with their archive-wide threads."""
    given = {message: thread for message, thread in rows if thread is not None}
    if scope.mailboxes is None:
        statement = _NEWEST.format(messages=scope.messages("n"))
        values = {"threads": sorted(set(given.values())), "limit": MOST_COUNTED, **scope.values()}
        named: dict[UUID, UUID] = given
    else:
        found = _conversations(connection, scope, set(given.values()))
        named = {one: name for one in given if one in found and (name := found[one].name)}
        members = {member: named[one] for one in named for member in sorted(found[one].members)[-MOST_COUNTED:]}
        statement, values = _MEMBERS, {"ids": list(members), "names": list(members.values())}
    listed: dict[UUID, list[ConversationMember]] = {}
    for row in query(connection, statement, ConversationMember, **values) if named else ():
        listed.setdefault(row.conversation, []).append(row)
    summed = {name: _summary(name, members) for name, members in listed.items()}
    return {one: summed[name] for one, name in named.items() if name in summed}


def _summary(name: UUID, members: Sequence[ConversationMember]) -> ConversationSummary:
    people = dict.fromkeys(one.sender_name or one.sender or "" for one in members)
    return ConversationSummary(name, len({one.canonical_sha256 for one in members}), tuple(filter(None, people)))


def _conversations(connection: Connection, scope: MailScope, threads: Iterable[UUID]) -> dict[UUID, Conversation]:
    wanted = sorted(threads)
    if not wanted:
        return {}
    parts = {"copies": scope.copies("c"), "messages": scope.messages(), "state": scope.search_state()}
    rows = query(connection, _VISIBLE.format(**parts), VisibleMember, threads=wanted, **scope.values())
    decisions = load_decisions(connection, rows)
    by_thread: dict[UUID, list[VisibleMember]] = {}
    for row in rows:
        by_thread.setdefault(row.thread_id, []).append(row)
    found: dict[UUID, Conversation] = {}
    for thread, those in by_thread.items():
        for group in group_messages(those, lambda ids: load_correspondents(connection, ids), decisions):
            made = Conversation(thread, tuple(group), is_whole=len(group) == len(those))
            found |= dict.fromkeys(group, made)
    return found


def load_correspondents(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, Correspondents]:
    found: dict[UUID, Correspondents] = {}
    for row in query(connection, _CORRESPONDENTS, MessagePeople, ids=list(ids), people=MOST_PEOPLE):
        known, addresses = found.get(row.message_id, Correspondents()), frozenset(row.addresses)
        found[row.message_id] = replace(known, recipients=addresses) if row.is_recipient else replace(known, senders=addresses)
    return found
