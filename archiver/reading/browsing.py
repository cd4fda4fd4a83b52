"""Leafing through mailboxes without a search: their folders as a tree, and their mail by date, straight from the database.

The folders of a mailbox are read at once and cached by the caller; a level of the tree is cut out of them. So a mailbox with
100,000 folders costs one statement now and then, and a level costs only what it shows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, islice
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query, query_optional
from archiver.errors import NotFound
from archiver.reading.messages import MessageRow, PageCursor
from archiver.search.names import like_pattern

_SMALL_FOLDER = 20_000
"""Below, the mail of a folder is sorted; above, the mail of the archive is read by date until a page is full."""
_COUNTS = """
    SELECT folder AS path, count(*) AS messages FROM message_copies WHERE mailbox_id = :id AND deleted_at IS NULL
    GROUP BY folder"""
_MAILBOXES = """
    SELECT b.id, b.address, b.display_name, s.name AS source FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id
    WHERE {visible} AND lower(b.address) LIKE :pattern AND (lower(b.address), b.id) > (:after, CAST(:after_id AS uuid))
    ORDER BY lower(b.address), b.id LIMIT :limit"""
_MAILBOX_COUNTS = """
    SELECT mailbox_id AS id, count(*) AS messages FROM message_copies
    WHERE mailbox_id = ANY(:ids) AND deleted_at IS NULL GROUP BY 1"""
_COLUMNS = """m.id, encode(m.sha256, 'hex') AS sha256, m.sort_at AS date, m.sender, m.sender_name, m.subject, m.size_bytes,
    m.has_attachments, m.thread_id, {state} AS search_state"""
_BY_COPIES = """
    SELECT {columns} FROM messages m WHERE m.id IN (
        SELECT sc.message_id FROM message_copies sc WHERE {held}) AND {within}
    ORDER BY m.sort_at {order}, m.id {order} LIMIT :limit"""
_BY_DATE = """
    SELECT {columns} FROM messages m WHERE {within} AND EXISTS (
        SELECT 1 FROM message_copies sc WHERE sc.message_id = m.id AND {held})
    ORDER BY m.sort_at {order}, m.id {order} LIMIT :limit"""
_NO_ID = UUID(int=0)
_LEVEL, _NEXT = "\0", "\1"
"""In the keys of folders: the separator, which no text in the database contains, and the character after it."""


@dataclass(frozen=True, slots=True)
class CountedFolder:
    path: str
    messages: int


@dataclass(frozen=True, slots=True)
class BrowsedMailbox:
    id: UUID
    address: str
    display_name: str | None
    source: str


@dataclass(frozen=True, slots=True)
class MailboxCount:
    id: UUID
    messages: int


@dataclass(frozen=True, slots=True)
class FolderNode:
    name: str
    path: str
    messages: int
    """In this folder and below."""
    own: int
    """In this folder alone."""
    has_children: bool


class FolderTree:
    """The folders of a mailbox. `/` separates their levels, whatever the server uses.

    Sorted with the separator as the smallest character, so that all that is below a folder directly follows it.
    """

    def __init__(self, folders: Iterable[CountedFolder]) -> None:
        rows = sorted((row.path.replace("/", _LEVEL), row.messages) for row in folders if row.path)
        self._keys = [key for key, _ in rows]
        self._sums = [0, *accumulate(count for _, count in rows)]

    def __len__(self) -> int:
        return len(self._keys)

    def children(self, under: str = "", *, after: str = "", limit: int = 200) -> list[FolderNode]:
        """Folders directly under a path, by name. `after`: the name that the previous page ended with."""
        prefix = f"{under}/".replace("/", _LEVEL) if under else ""
        at, end = self._range(prefix)
        if after:
            at = bisect_left(self._keys, f"{prefix}{after}{_NEXT}", at, end)
        found: list[FolderNode] = []
        while at < end and len(found) < limit:
            name = self._keys[at][len(prefix) :].partition(_LEVEL)[0]
            found.append(self.node(f"{under}/{name}" if under else name))
            at = bisect_left(self._keys, f"{prefix}{name}{_NEXT}", at, end)
        return found

    def node(self, path: str) -> FolderNode:
        key = path.replace("/", _LEVEL)
        at = bisect_left(self._keys, key)
        is_there = at < len(self._keys) and self._keys[at] == key
        own = self._sums[at + 1] - self._sums[at] if is_there else 0
        start, end = self._range(f"{key}{_LEVEL}")
        return FolderNode(path.rpartition("/")[2], path, own + self._sums[end] - self._sums[start], own, end > start)

    def find(self, text: str, limit: int = 200) -> list[FolderNode]:
        """Folders with this text anywhere in their path."""
        wanted = text.casefold().replace("/", _LEVEL)
        found = (key.replace(_LEVEL, "/") for key in self._keys if wanted in key.casefold())
        return [self.node(path) for path in islice(found, limit)]

    def _range(self, prefix: str) -> tuple[int, int]:
        if not prefix:
            return 0, len(self._keys)
        return bisect_left(self._keys, prefix), bisect_left(self._keys, f"{prefix[:-1]}{_NEXT}")


def load_tree(connection: Connection, mailbox_id: UUID) -> FolderTree:
    """The caller has checked that the mailbox is visible."""
    return FolderTree(query(connection, _COUNTS, CountedFolder, id=mailbox_id))


def list_mailboxes(
    connection: Connection, scope: MailScope, *, find: str = "", after: BrowsedMailbox | None = None, limit: int = 200
) -> list[BrowsedMailbox]:
    visible = "true" if scope.mailboxes is None else "b.id = ANY(:scope_mailboxes)"
    values = {"pattern": like_pattern(f"*{find}*"), "after": after.address.lower() if after else "", "limit": limit}
    values["after_id"] = after.id if after else _NO_ID
    return query(connection, _MAILBOXES.format(visible=visible), BrowsedMailbox, **values, **scope.values())


def count_mail(connection: Connection, mailbox_ids: Sequence[UUID]) -> dict[UUID, int]:
    return {row.id: row.messages for row in query(connection, _MAILBOX_COUNTS, MailboxCount, ids=list(mailbox_ids))}


def load_mailbox(connection: Connection, scope: MailScope, mailbox_id: UUID) -> BrowsedMailbox:
    statement = """
        SELECT b.id, b.address, b.display_name, s.name AS source FROM mailboxes b
        JOIN ingestion_sources s ON s.id = b.source_id WHERE b.id = :id"""
    found = query_optional(connection, statement, BrowsedMailbox, id=mailbox_id) if scope.sees(mailbox_id) else None
    if found is None:
        raise NotFound(f"there is no mailbox {mailbox_id}")
    return found


@dataclass(frozen=True, slots=True)
class MailPage:
    messages: list[MessageRow]
    """Newest first."""
    has_newer: bool
    has_older: bool


def leaf_through(
    connection: Connection,
    scope: MailScope,
    folder: str | None,
    expected: int,
    *,
    below: PageCursor | None = None,
    above: PageCursor | None = None,
    until: datetime | None = None,
    limit: int = 50,
) -> MailPage:
    """A page of the mail of one mailbox (the scope), by date. `expected`: how many messages the folder has, about."""
    held, values = scope.copies("sc"), {**scope.values(), "limit": limit + 1}
    if folder is not None:
        held, values["folder"] = f"{held} AND sc.folder = :folder", folder
    within, order = "true", "DESC"
    if above is not None:
        within, order = "(m.sort_at, m.id) > (:date, :id)", "ASC"
        values |= {"date": above.date, "id": above.id}
    elif below is not None:
        within = "(m.sort_at, m.id) < (:date, :id)"
        values |= {"date": below.date, "id": below.id}
    elif until is not None:
        within, values["date"] = "m.sort_at < :date", until
    found = _read(connection, scope, expected, values, held=held, within=within, order=order)
    more, found = len(found) > limit, found[:limit]
    if above is not None:
        return MailPage(found[::-1], more, True)
    return MailPage(found, below is not None or until is not None, more)


def _read(connection: Connection, scope: MailScope, expected: int, values: dict[str, Any], **parts: str) -> list[MessageRow]:
    statement = _BY_COPIES if expected < _SMALL_FOLDER else _BY_DATE
    columns = _COLUMNS.format(state=scope.search_state())
    return query(connection, statement.format(columns=columns, **parts), MessageRow, **values)
