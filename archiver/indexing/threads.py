"""Assigns each message to the right thread, in whatever order messages arrive: a late parent joins the threads of its children.

All ids that a message carries, its own and those that it answers to, belong to one thread (`thread_links`). A reply that names
none belongs to the latest message before it that it may answer to (archiver.mail.threads). When a message arrives late, and
such a reply answers to it rather than to what it was joined to, the thread is grouped again, and may fall apart. So the order
does not matter. Threads know nothing of sources: one thread goes across all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from archiver.db import sql
from archiver.db.ids import uuid_of
from archiver.indexing.rows import AnsweredMessage, SubjectReply
from archiver.indexing.thread_splits import regroup
from archiver.mail.thread_groups import (
    MOST_EARLIER,
    UNDECIDED,
    Components,
    Decisions,
    Key,
    Threadable,
    keys_of,
    linked_keys,
    own_key,
    subject_key,
)
from archiver.mail.threads import FALLBACK_DAYS, normalise_subject
from archiver.search.conversations import MOST_PEOPLE
from archiver.search.thread_decisions import decisions_on, load_decisions

# One transaction at a time joins threads; those that write what was joined (archiver.indexing.indexer) hold it together.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('archiver:threads', 0))"
_TOGETHER = "SELECT pg_advisory_xact_lock_shared(hashtextextended('archiver:threads', 0))"

_MOST_REPLIES = 5
"""Replies without ids that are inspected for one message that arrives after them."""
_MOST_REGROUPED = 2_000
"""Messages of a thread that is grouped again whenever a message arrives late. Larger ones wait for the next `rethread`."""

_LINKS = """
    SELECT replace(key::text, '-', '') AS key, replace(thread_id::text, '-', '') AS thread FROM thread_links
    WHERE key = ANY(:keys::uuid[])"""
_ADD_LINKS = """
    INSERT INTO thread_links (key, thread_id)
    SELECT k, t FROM json_to_recordset(:rows::json) AS x(k uuid, t uuid) ON CONFLICT DO NOTHING"""
_MOVE_LINKS = """
    UPDATE thread_links SET thread_id = x.w FROM json_to_recordset(:rows::json) AS x(l uuid, w uuid) WHERE thread_id = x.l"""
_MOVE_MESSAGES = """
    UPDATE messages SET thread_id = moved.w, index_version = index_version + 1
    FROM (SELECT m.id, x.w FROM json_to_recordset(:rows::json) AS x(l uuid, w uuid) JOIN messages m ON m.thread_id = x.l
          ORDER BY m.id FOR NO KEY UPDATE OF m) AS moved
    WHERE messages.id = moved.id"""

_UNASSIGNED = "SELECT id FROM messages WHERE id = ANY(:ids::uuid[]) AND thread_id IS NULL"

# Replies without ids that may answer to these messages, the first ones after each.
_REPLIES = """
    SELECT DISTINCT near.id, near.internet_message_id, near.subject, near.sort_at
    FROM json_to_recordset(:rows::json) AS x(k uuid, at timestamptz), LATERAL (
        SELECT m.id, m.internet_message_id, m.subject, m.sort_at FROM messages m
        WHERE m.thread_subject = x.k AND m.sort_at BETWEEN x.at AND x.at + make_interval(days => :days)
            AND coalesce(m.in_reply_to, '') = '' AND array_to_string(m.reference_ids, '') = ''
        ORDER BY m.sort_at LIMIT :limit) AS near"""

_EARLIER = """
    (SELECT m.id, m.internet_message_id, m.sort_at FROM messages m
     WHERE m.thread_subject = x.{key} AND m.sort_at BETWEEN x.at - make_interval(days => :days) AND x.at
         AND (m.sort_at, m.id) < (x.at, x.i)
         AND EXISTS (SELECT 1 FROM message_copies c JOIN message_copies d ON d.mailbox_id = c.mailbox_id
                     WHERE c.message_id = m.id AND d.message_id = x.i AND c.deleted_at IS NULL AND d.deleted_at IS NULL)
     ORDER BY m.sort_at DESC, m.id DESC LIMIT :limit)"""

# What each reply answers to: the latest before it, in one of its mailboxes, where one of the two wrote to the other. Mail of
# other mailboxes is left out before the limit: it must not crowd out the reader's own.
_ANSWERED = f"""
    SELECT x.i AS reply, answered.id, answered.internet_message_id
    FROM json_to_recordset(:rows::json) AS x(i uuid, r uuid, s uuid, at timestamptz), LATERAL (
        SELECT e.id, e.internet_message_id
        FROM (SELECT * FROM ({_EARLIER.format(key="r")} UNION ALL {_EARLIER.format(key="s")}) AS near
              ORDER BY sort_at DESC, id DESC LIMIT :limit) AS e
        WHERE EXISTS (SELECT 1 FROM participants p JOIN participants q ON q.address = p.address
                        WHERE p.message_id = e.id AND q.message_id = x.i AND p.address <> ''
                            AND p.position < :people AND q.position < :people
                            AND (p.role IN ('to', 'cc', 'bcc')) <> (q.role IN ('to', 'cc', 'bcc')))
        ORDER BY e.sort_at DESC, e.id DESC LIMIT 1) AS answered"""  # noqa: S608


ADD_MEMBERS = """
    INSERT INTO thread_split_members (split_id, key)
    SELECT s, k FROM json_to_recordset(:rows::json) AS x(s uuid, k uuid) ON CONFLICT DO NOTHING"""


class HexLink(NamedTuple):
    """Both as hex digits."""

    key: Key
    thread: Key


def hold_threads(connection: Connection) -> None:
    """Until the end of the transaction no thread is joined to another."""
    sql.run(connection, _TOGETHER)


def hold_threads_alone(connection: Connection) -> None:
    """Until the end of the transaction no other one joins or splits threads, or relies on them."""
    sql.run(connection, _ALONE)


def join_threads(connection: Connection, messages: Sequence[Threadable]) -> dict[UUID, UUID]:
    """The thread of each. Messages that move to another thread are due to be indexed again.

    To be called in a transaction that holds no lock on a message.
    """
    hold_threads_alone(connection)
    decisions = _decide(connection, messages)
    keys = {message.id: (own_key(message), *linked_keys(message, decisions)) for message in messages}
    answers = _find_answers(connection, messages, decisions)
    asked = {key for listed in keys.values() for key in listed}
    known = _links(connection, asked | {key for pair in answers.items() for key in pair})
    components = Components()
    for listed in keys.values():
        for key in listed:
            components.join(listed[0], key)
    first_of_thread: dict[Key, Key] = {}
    for key, thread in known.items():
        components.join(first_of_thread.setdefault(thread, key), key)
    assigned = known.keys() | {listed[0] for listed in keys.values()}
    for reply, answered in answers.items():
        if reply in assigned and answered in assigned:  # what waits for its turn is joined then
            components.join(reply, answered)
    threads = _choose(components, known, keys)
    _write(connection, components, threads, known, asked)
    late = _find_late(connection, messages, {answered for reply, answered in answers.items() if reply in known})
    doubtful = {threads[components.find(reply)] for reply, answered in answers.items() if reply in known and answered in late}
    if doubtful and regroup(connection, [uuid_of(int(thread, 16)) for thread in doubtful], keys, limit=_MOST_REGROUPED):
        moved = _links(connection, {listed[0] for listed in keys.values()})
        return {message_id: uuid_of(int(moved[listed[0]], 16)) for message_id, listed in keys.items()}
    return {message_id: uuid_of(int(threads[components.find(listed[0])], 16)) for message_id, listed in keys.items()}


def _decide(connection: Connection, messages: Sequence[Threadable]) -> Decisions:
    """What people decided about these messages. What answers to a part that was split off is in it from now on, so that its own
    answers are, too, whatever else they name."""
    known = load_decisions(connection, messages)
    if not known:
        return known
    found, parts = dict(known), set(known.values())
    for message in sorted(messages, key=lambda one: (one.sort_at, one.id)):
        linked = linked_keys(message, found)
        if linked and linked[0] in parts:
            found.setdefault(own_key(message), linked[0])
    added = [{"s": part, "k": key} for key, part in sorted(found.items()) if key not in known]
    if added:
        sql.run(connection, ADD_MEMBERS, rows=sql.rows(added))
    return found


def _find_late(connection: Connection, messages: Sequence[Threadable], answered: Collection[Key]) -> set[Key]:
    """The keys of those messages that replies answer to, and that were in no thread until now. A link does not tell that: a
    message that names another one adds its link, possibly before the other one arrives."""
    own = {message.id: key for message in messages if (key := own_key(message)) in answered}
    return {own[found] for found in sql.query(connection, _UNASSIGNED, UUID, ids=sql.uuids(own))} if own else set()


def _links(connection: Connection, keys: Iterable[Key]) -> dict[Key, Key]:
    return dict(sql.query(connection, _LINKS, HexLink, keys=f"{{{','.join(keys)}}}"))


def _choose(components: Components, known: dict[Key, Key], keys: dict[UUID, tuple[Key, ...]]) -> dict[Key, Key]:
    """For each component the smallest thread that is there, or a new one, named after a message of it."""
    threads: dict[Key, Key] = {}
    for key, thread in known.items():
        root = components.find(key)
        threads[root] = min(thread, threads.get(root, thread))
    for name, own in sorted((message_id.hex, listed[0]) for message_id, listed in keys.items()):
        threads.setdefault(components.find(own), name)
    return threads


def _write(
    connection: Connection,
    components: Components,
    threads: dict[Key, Key],
    known: dict[Key, Key],
    asked: Iterable[Key],
) -> None:
    moves = {thread: threads[components.find(key)] for key, thread in known.items()}
    moved = [{"l": loser, "w": winner} for loser, winner in sorted(moves.items()) if loser != winner]
    if moved:
        sql.run(connection, _MOVE_LINKS, rows=sql.rows(moved))
        sql.run(connection, _MOVE_MESSAGES, rows=sql.rows(moved))
    added = [{"k": key, "t": threads[components.find(key)]} for key in sorted(set(asked) - known.keys())]
    if added:
        sql.run(connection, _ADD_LINKS, rows=sql.rows(added))


def _find_answers(connection: Connection, messages: Sequence[Threadable], decisions: Decisions) -> Mapping[Key, Key]:
    """By the key of each reply that goes by its subject, among these and near them, the key of what it answers to."""
    replies: dict[UUID, dict[str, Any]] = {}
    near = []
    for message in messages:
        keys = keys_of(message, decisions)
        if keys.subject:
            near.append({"k": subject_key(keys.subject, is_reply=True), "at": message.sort_at})
        if keys.goes_by_subject:
            replies[message.id] = _reply_row(message, keys.subject)
    own = {message.id: own_key(message) for message in messages}
    if near:
        later = sql.query(connection, _REPLIES, SubjectReply, rows=sql.rows(near), days=FALLBACK_DAYS, limit=_MOST_REPLIES)
        decided = decisions_on(connection, map(own_key, later)) if later else UNDECIDED
        for row in later:
            if own_key(row) in decided:
                continue
            replies.setdefault(row.id, _reply_row(row, normalise_subject(row.subject or "")[0]))
            own[row.id] = own_key(row)
    if not replies:
        return {}
    rows = sql.rows([replies[message_id] for message_id in sorted(replies)])
    found = sql.query(
        connection, _ANSWERED, AnsweredMessage, rows=rows, days=FALLBACK_DAYS, limit=MOST_EARLIER, people=MOST_PEOPLE
    )
    return {own[row.reply]: own_key(row) for row in found}


def _reply_row(message: Threadable | SubjectReply, subject: str) -> dict[str, Any]:
    keys = {kind: subject_key(subject, is_reply=kind == "r") for kind in "rs"}
    return {"i": message.id, "at": message.sort_at, **keys}
