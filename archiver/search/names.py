"""Names in queries that only the database knows: addresses that match a pattern, mailboxes, sources, folders, labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import Engine

from archiver.access.scope import MailScope
from archiver.db.sql import query
from archiver.search import conversations
from archiver.search.query.compiler import HoldScope
from archiver.search.query.errors import QueryError
from archiver.search.query.parser import parse

# Skips from one folder to the next in the index: mail has far fewer folders than copies. {boxes} selects the mailboxes (b).
# (Postgres uses the partial index for folders only if the query compares the folder, even with an always-true condition.)
FOLDERS_HELD = """
    known AS (
        SELECT b.id AS mailbox_id, (
            SELECT min(c.folder) FROM message_copies c WHERE c.mailbox_id = b.id AND c.folder >= '') AS folder
        FROM mailboxes b WHERE {boxes}
        UNION ALL
        SELECT mailbox_id, (
            SELECT min(c.folder) FROM message_copies c WHERE c.mailbox_id = known.mailbox_id AND c.folder > known.folder)
        FROM known WHERE folder IS NOT NULL),
    held AS (SELECT folder FROM known, LATERAL (
        SELECT 1 FROM message_copies c
        WHERE c.mailbox_id = known.mailbox_id AND c.folder = known.folder AND c.deleted_at IS NULL LIMIT 1) AS one)"""

# Likewise from one address to the next.
_ADDRESSES = """
    WITH RECURSIVE known AS (
        (SELECT left(address, 320) COLLATE "C" AS address FROM participants ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT left(p.address, 320) COLLATE "C" FROM participants p
                WHERE left(p.address, 320) COLLATE "C" > known.address ORDER BY 1 LIMIT 1)
        FROM known WHERE known.address IS NOT NULL)
    SELECT address FROM known WHERE address LIKE :pattern AND address LIKE '%@%'
    AND (CAST(:mailboxes AS uuid[]) IS NULL OR EXISTS (
        SELECT 1 FROM participants p JOIN message_copies c ON c.message_id = p.message_id
        WHERE left(p.address, 320) COLLATE "C" = known.address AND c.deleted_at IS NULL AND c.mailbox_id = ANY(:mailboxes)))
    LIMIT :limit"""
_MAILBOXES = """
    SELECT id FROM mailboxes
    WHERE lower(address) LIKE :pattern OR split_part(lower(address), '@', 1) LIKE :pattern OR CAST(id AS text) = :name"""
_SOURCES = """
    SELECT s.id, b.id AS mailbox_id FROM ingestion_sources s LEFT JOIN mailboxes b ON b.source_id = s.id
    WHERE lower(s.name) LIKE :pattern OR CAST(s.id AS text) = :name"""
_FOLDERS = (
    f"WITH RECURSIVE {FOLDERS_HELD.format(boxes='CAST(:mailboxes AS uuid[]) IS NULL OR b.id = ANY(:mailboxes)')}"  # noqa: S608
    " SELECT DISTINCT folder FROM held WHERE lower(folder) LIKE :pattern ORDER BY folder LIMIT :limit"
)
_LABELS = """
    SELECT DISTINCT label FROM message_copies, unnest(labels) AS label
    WHERE labels <> '{}' AND deleted_at IS NULL AND lower(label) LIKE :pattern
    AND (CAST(:mailboxes AS uuid[]) IS NULL OR mailbox_id = ANY(:mailboxes)) ORDER BY label LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class SelectedHold:
    mailbox_ids: list[UUID]
    addresses: list[str]
    query: str | None
    zone: str
    created_at: datetime
    message_ids: list[UUID]


@dataclass(frozen=True, slots=True)
class SourceMailbox:
    id: UUID
    mailbox_id: UUID | None


_HOLDS = """
    SELECT h.mailbox_ids, h.addresses, h.query, h.zone, h.created_at,
        ARRAY(SELECT x.message_id FROM hold_messages x WHERE x.hold_id = h.id AND x.is_selected LIMIT :limit) AS message_ids
    FROM holds h WHERE h.released_at IS NULL AND (lower(h.name) LIKE :pattern OR CAST(h.id AS text) = :name)"""
_MOST_SELECTED = 10_001
_TAGGED = """
    SELECT DISTINCT x.message_id FROM tags t JOIN message_tags x ON x.tag_id = t.id
    WHERE lower(t.name) LIKE :pattern AND (t.owner_id IS NULL OR t.owner_id = CAST(:reader AS uuid)) LIMIT :limit"""
_NOTED = """
    SELECT DISTINCT n.message_id FROM notes n WHERE (n.is_shared OR n.owner_id = CAST(:reader AS uuid))
    AND (:words = '*' OR to_tsvector('simple', n.text) @@ plainto_tsquery('simple', :words)) LIMIT :limit"""


FindExpiring = Callable[[Engine, datetime, datetime, frozenset[UUID] | None, int], Sequence[UUID]]
"""The messages that expire in a time, in these mailboxes, up to a limit."""


class DatabaseNames:
    """Looks up names lazily, only when a query contains them."""

    def __init__(self, engine: Engine, expiring: FindExpiring | None = None) -> None:
        """`expiring`: asks the retention policies, which are not known here."""
        self._engine = engine
        self._expiring = expiring

    def addresses(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]:
        return self._column(_ADDRESSES, pattern=like_pattern(pattern), mailboxes=_array(mailboxes), limit=limit)

    def mailboxes(self, name: str) -> frozenset[UUID]:
        with self._engine.connect() as connection:
            return frozenset(query(connection, _MAILBOXES, UUID, pattern=like_pattern(name), name=name.lower()))

    def sources(self, name: str) -> dict[UUID, frozenset[UUID]]:
        with self._engine.connect() as connection:
            rows = query(connection, _SOURCES, SourceMailbox, pattern=like_pattern(name), name=name.lower())
        found: dict[UUID, set[UUID]] = {}
        for row in rows:
            found.setdefault(row.id, set()).update([row.mailbox_id] if row.mailbox_id else [])
        return {source: frozenset(mailboxes) for source, mailboxes in found.items()}

    def folders(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]:
        return self._column(_FOLDERS, pattern=like_pattern(pattern), mailboxes=_array(mailboxes), limit=limit)

    def labels(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]:
        return self._column(_LABELS, pattern=like_pattern(pattern), mailboxes=_array(mailboxes), limit=limit)

    def retention_labels(self) -> Sequence[str]:
        return self._column("SELECT name FROM retention_labels ORDER BY name")

    def holds(self, name: str) -> Sequence[HoldScope]:
        values = {"pattern": like_pattern(name), "name": name.lower(), "limit": _MOST_SELECTED}
        with self._engine.connect() as connection:
            rows = query(connection, _HOLDS, SelectedHold, **values)
        return [
            HoldScope(
                frozenset(row.mailbox_ids),
                tuple(row.addresses),
                parse(row.query, row.created_at.replace(microsecond=0), ZoneInfo(row.zone)) if row.query else None,
                tuple(row.message_ids),
            )
            for row in rows
        ]

    def tagged(self, pattern: str, reader: UUID | None, limit: int) -> Sequence[UUID]:
        with self._engine.connect() as connection:
            return query(connection, _TAGGED, UUID, pattern=like_pattern(pattern), reader=reader, limit=limit)

    def noted(self, text: str, reader: UUID | None, limit: int) -> Sequence[UUID]:
        with self._engine.connect() as connection:
            return query(connection, _NOTED, UUID, words=text, reader=reader, limit=limit)

    def expiring(self, since: datetime, until: datetime, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[UUID]:
        if self._expiring is None:
            raise QueryError("expires: can't be used here")
        return self._expiring(self._engine, since, until, mailboxes, limit)

    def conversation(self, message: UUID, mailboxes: frozenset[UUID]) -> tuple[UUID | None, Sequence[UUID] | None]:
        with self._engine.connect() as connection:
            found = conversations.conversation(connection, MailScope(mailboxes), message)
        if found is None:
            return None, ()
        return (found.thread_id, None) if found.thread_id and found.is_whole else (None, found.members)

    def _column(self, statement: str, **values: object) -> Sequence[str]:
        with self._engine.connect() as connection:
            return query(connection, statement, str, **values)


def _array(mailboxes: frozenset[UUID] | None) -> list[UUID] | None:
    return None if mailboxes is None else sorted(mailboxes)


def like_pattern(pattern: str) -> str:
    """A LIKE pattern in which `*` matches any characters, and all others match themselves."""
    escaped = pattern.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")
