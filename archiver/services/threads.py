"""Keeps each message in the right thread, in whatever order they arrive: a late parent joins the threads of its children.

All ids that a message carries, its own and those that it answers to, belong to one thread (`thread_links`). A message that
shares none of them may still belong to one by its subject (archiver.mail.threads). Threads only ever grow together, so the
order does not matter; they know nothing of sources, so one thread goes across all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.mail.threads import FALLBACK_DAYS, FALLBACK_WINDOW, ThreadKeys, normalise_subject
from archiver.models.ids import uuid_of
from archiver.services import batch_sql as sql

_MOST_PARENTS = 50
_MOST_NEAR = 200
"""Messages of one subject within the time that are looked at for one message."""

# One at a time joins threads; those who write what was joined (services.indexing) hold it together.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:threads', 0))")
_TOGETHER = text("SELECT pg_advisory_xact_lock_shared(hashtextextended('archiver:threads', 0))")

_LINKS = """
    SELECT replace(key::text, '-', '') AS key, replace(thread_id::text, '-', '') AS thread FROM thread_links
    WHERE key = ANY(%(keys)s::uuid[])"""
_ADD_LINKS = """
    INSERT INTO thread_links (key, thread_id)
    SELECT k, t FROM json_to_recordset(%(rows)s::json) AS x(k uuid, t uuid) ON CONFLICT DO NOTHING"""
_MOVE_LINKS = """
    UPDATE thread_links SET thread_id = x.w FROM json_to_recordset(%(rows)s::json) AS x(l uuid, w uuid) WHERE thread_id = x.l"""
_MOVE_MESSAGES = """
    UPDATE messages SET thread_id = moved.w, index_version = index_version + 1
    FROM (SELECT m.id, x.w FROM json_to_recordset(%(rows)s::json) AS x(l uuid, w uuid) JOIN messages m ON m.thread_id = x.l
          ORDER BY m.id FOR NO KEY UPDATE OF m) AS moved
    WHERE messages.id = moved.id"""
# Two that both name what they answer to are never joined by their subject: most of a long thread is not looked at.
_NEAR = """
    SELECT x.n, near.id, near.internet_message_id
    FROM json_to_recordset(%(rows)s::json) AS x(n int, i uuid, k uuid, at timestamptz, p boolean), LATERAL (
        SELECT m.id, m.internet_message_id FROM messages m WHERE m.thread_subject = x.k AND m.id <> x.i AND m.sort_at
            BETWEEN x.at - make_interval(days => %(days)s) AND x.at + make_interval(days => %(days)s)
            AND NOT (x.p AND (coalesce(m.in_reply_to, '') <> '' OR array_to_string(m.reference_ids, '') <> ''))
        LIMIT %(most)s) AS near"""
_DETAILS = """
    SELECT m.id, m.internet_message_id, m.in_reply_to, m.reference_ids, m.subject, m.sort_at,
        ARRAY(SELECT p.address FROM participants p WHERE p.message_id = m.id AND p.address <> '' LIMIT 1000) AS people,
        ARRAY(SELECT c.mailbox_id FROM message_copies c WHERE c.message_id = m.id AND c.deleted_at IS NULL) AS mailboxes
    FROM messages m WHERE m.id = ANY(%(ids)s::uuid[])"""


class Identified(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def internet_message_id(self) -> str | None: ...


class Threadable(Identified, Protocol):
    """A row of messages, as far as it matters here."""

    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def reference_ids(self) -> list[str]: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def sort_at(self) -> datetime: ...


def thread_subject(normalised: str, is_reply: bool) -> UUID | None:
    """For `messages.thread_subject`, from what `normalise_subject` gives. Replies have another key than what they
    answer to, so that the thousandth issue of a newsletter need not look at the others."""
    return uuid_of(int(_subject_key(normalised, is_reply=is_reply), 16)) if normalised else None


def hold_threads(connection: Connection) -> None:
    """Until the end of the transaction no thread is joined to another."""
    connection.execute(_TOGETHER)


Key = str
"""A UUID as 32 hex digits: compared and hashed in a tenth of the time, which a batch does a hundred thousand times."""


def own_key(message: Identified) -> Key:
    """The key under which `thread_links` always has the message's own thread."""
    return _hashed(message.internet_message_id) if message.internet_message_id else message.id.hex


def join_threads(connection: Connection, messages: Sequence[Threadable]) -> dict[UUID, UUID]:
    """The thread of each. Messages that another thread takes in are moved, and their documents are due again.

    To be called in a transaction that holds no lock on a message.
    """
    connection.execute(_ALONE)
    parents = [_parents(message) for message in messages]
    keys = {message.id: (own_key(message), *map(_hashed, above)) for message, above in zip(messages, parents, strict=True)}
    near = _near(connection, messages, parents)
    asked = {key for listed in keys.values() for key in listed} | {pair.second_key for pair in near}
    known: dict[Key, Key] = dict(map(tuple, sql.run(connection, _LINKS, keys=f"{{{','.join(asked)}}}")))
    components = _Components()
    for listed in keys.values():
        for key in listed:
            components.join(listed[0], key)
    first_of_thread: dict[Key, Key] = {}
    for key, thread in known.items():
        components.join(first_of_thread.setdefault(thread, key), key)
    _join_near(connection, components, near)
    threads = _choose(components, known, keys)
    _write(connection, components, threads, known, asked)
    return {message_id: uuid_of(int(threads[components.find(listed[0])], 16)) for message_id, listed in keys.items()}


class Shown(Threadable, Protocol):
    """One that somebody sees, with the mailboxes in which they see it."""

    @property
    def mailboxes(self) -> list[UUID]: ...


def grouped(
    messages: Sequence[Shown], people_of: Callable[[Sequence[UUID]], Mapping[UUID, frozenset[str]]]
) -> list[list[UUID]]:
    """Which of these belong together by what is in them alone. `people_of` is asked for those that subjects may join."""
    components = _Components()
    for message in messages:
        for parent in _parents(message):
            components.join(own_key(message), _hashed(parent))
    apart = _apart(messages, components)
    people = people_of([message.id for those in apart for message in those]) if apart else {}
    for those in apart:
        _join_by_subject(those, people, components)
    groups: dict[Key, list[UUID]] = {}
    for message in messages:
        groups.setdefault(components.find(own_key(message)), []).append(message.id)
    return list(groups.values())


def _apart(messages: Sequence[Shown], components: _Components) -> list[list[Shown]]:
    """Messages of one subject, oldest first, that ids have not joined to one group."""
    by_subject: dict[str, list[Shown]] = {}
    for message in sorted(messages, key=lambda one: (one.sort_at, one.id)):
        by_subject.setdefault(normalise_subject(message.subject or "")[0], []).append(message)
    by_subject.pop("", None)
    return [those for those in by_subject.values() if len({components.find(own_key(one)) for one in those}) > 1]


def _join_by_subject(those: Sequence[Shown], people: Mapping[UUID, frozenset[str]], components: _Components) -> None:
    """Each is compared with those that follow it within the time, until nothing is apart any more."""
    own = [own_key(one) for one in those]
    keys = [replace(_thread_keys(one), participants=people.get(one.id, frozenset())) for one in those]
    left = len({components.find(key) for key in own})
    for place, first in enumerate(those):
        for at in range(place + 1, min(place + 1 + _MOST_NEAR, len(those))):
            second = those[at]
            if left == 1 or second.sort_at - first.sort_at > FALLBACK_WINDOW:
                break
            if components.find(own[place]) == components.find(own[at]) or set(first.mailboxes).isdisjoint(second.mailboxes):
                continue
            if keys[place].may_join(keys[at], first.sort_at - second.sort_at):
                components.join(own[place], own[at])
                left -= 1


def _choose(components: _Components, known: dict[Key, Key], keys: dict[UUID, tuple[Key, ...]]) -> dict[Key, Key]:
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
    components: _Components,
    threads: dict[Key, Key],
    known: dict[Key, Key],
    asked: Iterable[Key],
) -> None:
    moves = {thread: threads[components.find(key)] for key, thread in known.items()}
    moved = [{"l": loser, "w": winner} for loser, winner in sorted(moves.items()) if loser != winner]
    if moved:
        sql.run(connection, _MOVE_LINKS, rows=sql.rows(moved))
        sql.run(connection, _MOVE_MESSAGES, rows=sql.rows(moved))
    added = [
        {"k": key, "t": threads[components.find(key)]}
        for key in sorted(set(asked) - known.keys())
        if components.find(key) in threads
    ]
    if added:
        sql.run(connection, _ADD_LINKS, rows=sql.rows(added))


class _Pair(NamedTuple):
    """Messages that may belong together by subject and time."""

    first: UUID
    first_key: Key
    second: UUID
    second_key: Key


def _near(connection: Connection, messages: Sequence[Threadable], parents: Sequence[Sequence[str]]) -> list[_Pair]:
    wanted = []
    for number, (message, above) in enumerate(zip(messages, parents, strict=True)):
        subject, is_reply = normalise_subject(message.subject or "")
        for kind in ((True, False) if is_reply else (True,)) if subject else ():
            key = _subject_key(subject, is_reply=kind)
            wanted.append({"n": number, "i": message.id, "k": key, "at": message.sort_at, "p": bool(above)})
    near = sql.run(connection, _NEAR, rows=sql.rows(wanted), days=FALLBACK_DAYS, most=_MOST_NEAR) if wanted else []
    return [_Pair(messages[row.n].id, own_key(messages[row.n]), row.id, own_key(row)) for row in near]


def _join_near(connection: Connection, components: _Components, near: Sequence[_Pair]) -> None:
    """Joins those that belong together by their subject. Most of them do so by their ids, too, and need no closer look."""
    apart = [pair for pair in near if components.find(pair.first_key) != components.find(pair.second_key)]
    if not apart:
        return
    ids = {message_id for pair in apart for message_id in (pair.first, pair.second)}
    rows = {row.id: row for row in sql.run(connection, _DETAILS, ids=sql.uuids(ids))}
    read = {row.id: _thread_keys(row) for row in rows.values()}
    for pair in apart:
        first, second = rows.get(pair.first), rows.get(pair.second)
        if first is None or second is None:  # deleted meanwhile
            continue
        same_mailbox = not set(first.mailboxes).isdisjoint(second.mailboxes)
        if same_mailbox and read[first.id].may_join(read[second.id], first.sort_at - second.sort_at):
            components.join(pair.first_key, pair.second_key)


def _thread_keys(row: Threadable) -> ThreadKeys:
    subject, is_reply = normalise_subject(row.subject or "")
    people = frozenset(getattr(row, "people", ()))
    return ThreadKeys(row.internet_message_id or "", tuple(_parents(row)), subject, is_reply, people)


def _parents(message: Threadable) -> list[str]:
    """Of a long list the first, which began the thread, and the last ones: whoever names a thousand threads joins few."""
    references = message.reference_ids
    if len(references) > _MOST_PARENTS:
        references = [*references[:5], *references[5 - _MOST_PARENTS :]]
    return [parent for parent in dict.fromkeys((message.in_reply_to, *references)) if parent]


def _subject_key(normalised: str, *, is_reply: bool) -> Key:
    return _hashed(f"{'reply' if is_reply else 'subject'}:{normalised}")


def _hashed(value: str) -> Key:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:32]


class _Components:
    """Which keys belong together (union and find)."""

    def __init__(self) -> None:
        self._parent: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        parent = self._parent.setdefault(key, key)
        while parent != (above := self._parent[parent]):
            self._parent[key] = above
            key, parent = parent, above
        return parent

    def join(self, first: Key, second: Key) -> None:
        self._parent[self.find(second)] = self.find(first)
