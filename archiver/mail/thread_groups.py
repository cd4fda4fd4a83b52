"""Groups messages into conversations by their content alone: by ids first, then by subjects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol
from uuid import UUID

from archiver.mail.threads import FALLBACK_WINDOW, Correspondents, ThreadKeys, normalise_subject

_MOST_PARENTS = 50
MOST_EARLIER = 200
"""How many messages with the same subject are inspected for a message that is joined by subject."""


Key = str
"""A UUID as 32 hex digits: comparing and hashing it takes a tenth of the time, and a batch does that a hundred thousand
times."""


def own_key(message: Identified) -> Key:
    """The key under which `thread_links` always has the message's own thread."""
    return hash_key(message.internet_message_id) if message.internet_message_id else message.id.hex


Decisions = Mapping[Key, Key]
"""By the own key of messages, the part of a conversation that a person split off with them."""
UNDECIDED: Decisions = {}


def linked_keys(message: Threadable, decisions: Decisions = UNDECIDED) -> list[Key]:
    """What a message belongs with, besides itself: what it names, unless a person decided otherwise.

    A message that was split off belongs with its part alone. One that answers to such a message belongs with that part, and
    with nothing that it names from before the split.
    """
    if (part := decisions.get(own_key(message))) is not None:
        return [part]
    parents = parents_of(message)
    if not decisions:
        return list(map(hash_key, parents))
    nearest = [*(one for one in parents if one != message.in_reply_to), *filter(None, [message.in_reply_to])]
    keys = list(map(hash_key, nearest))
    last = max((at for at, key in enumerate(keys) if key in decisions), default=None)
    return keys if last is None else [decisions[keys[last]], *keys[last + 1 :]]


class Identified(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def internet_message_id(self) -> str | None: ...


class Threadable(Identified, Protocol):
    """The columns of a message that threading needs."""

    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def reference_ids(self) -> list[str]: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def sort_at(self) -> datetime: ...


def thread_subject(normalised: str, is_reply: bool) -> Key | None:
    """For `messages.thread_subject`, from what `normalise_subject` gives. Replies have another key than what they
    answer to, so that the thousandth issue of a newsletter need not look at the others."""
    return subject_key(normalised, is_reply=is_reply) if normalised else None


class VisibleMessage(Threadable, Protocol):
    """A message with the mailboxes in which it is visible."""

    @property
    def mailboxes(self) -> list[UUID]: ...


CorrespondentsOf = Callable[[Sequence[UUID]], Mapping[UUID, Correspondents]]


def group_messages(
    messages: Sequence[VisibleMessage], correspondents_of: CorrespondentsOf, decisions: Decisions = UNDECIDED
) -> list[list[UUID]]:
    """Which of these belong together by what is in them, and by what a person decided. `correspondents_of` is called once, for
    those that subjects may join."""
    components = Components()
    for message in messages:
        for key in linked_keys(message, decisions):
            components.join(own_key(message), key)
    apart = _apart(messages, components, decisions)
    known = correspondents_of([message.id for those in apart for message, _ in those]) if apart else {}
    for those in apart:
        _join_by_subject(those, known, components)
    groups: dict[Key, list[UUID]] = {}
    for message in messages:
        groups.setdefault(components.find(own_key(message)), []).append(message.id)
    return list(groups.values())


_WithKeys = tuple[VisibleMessage, ThreadKeys]


def _apart(messages: Sequence[VisibleMessage], components: Components, decisions: Decisions) -> list[list[_WithKeys]]:
    """Messages of one subject, oldest first, that ids have not joined to one group, where one of them goes by its subject."""
    by_subject: dict[str, list[_WithKeys]] = {}
    for message in sorted(messages, key=lambda each: (each.sort_at, each.id)):
        keys = keys_of(message, decisions)
        by_subject.setdefault(keys.subject, []).append((message, keys))
    by_subject.pop("", None)
    return [
        those
        for those in by_subject.values()
        if any(keys.goes_by_subject for _, keys in those)
        and len({components.find(own_key(message)) for message, _ in those}) > 1
    ]


def _join_by_subject(those: Sequence[_WithKeys], known: Mapping[UUID, Correspondents], components: Components) -> None:
    """Joins each message that goes by its subject to the latest earlier one that it may answer."""
    keys = [replace(read, correspondents=known.get(message.id, Correspondents())) for message, read in those]
    for place, (message, _) in enumerate(those):
        for at in range(place - 1, max(-1, place - 1 - MOST_EARLIER), -1) if keys[place].goes_by_subject else ():
            earlier = those[at][0]
            apart = message.sort_at - earlier.sort_at
            if apart > FALLBACK_WINDOW:
                break
            if set(message.mailboxes).isdisjoint(earlier.mailboxes) or not keys[place].may_answer(keys[at], apart):
                continue
            components.join(own_key(earlier), own_key(message))
            break


def keys_of(row: Threadable, decisions: Decisions = UNDECIDED) -> ThreadKeys:
    """Without its correspondents, which are not in the row. What was split off answers to nothing by its subject."""
    subject, is_reply = normalise_subject(row.subject or "")
    is_reply = is_reply and own_key(row) not in decisions
    return ThreadKeys(row.internet_message_id or "", tuple(parents_of(row)), subject, is_reply)


def parents_of(message: Threadable) -> list[str]:
    """Of a long list only the first, which began the thread, and the last ones: a message that names a thousand threads must
    not join them all."""
    references = message.reference_ids
    if len(references) > _MOST_PARENTS:
        references = [*references[:5], *references[5 - _MOST_PARENTS :]]
    return [parent for parent in dict.fromkeys((message.in_reply_to, *references)) if parent]


def subject_key(normalised: str, *, is_reply: bool) -> Key:
    return hash_key(f"{'reply' if is_reply else 'subject'}:{normalised}")


def hash_key(value: str) -> Key:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:32]


class Components:
    """Sets of keys that belong together (union-find)."""

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
