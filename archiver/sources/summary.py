"""Summary of a source: what is archived, skipped and failed, and its size on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, query_one


@dataclass(frozen=True, slots=True)
class MailboxKept:
    address: str
    copies: int
    folders: int
    skipped: int
    dead_letters: int
    missing: int


@dataclass(frozen=True, slots=True)
class KeptCopies:
    copies: int
    messages: int
    bytes: int


class NamedCount(NamedTuple):
    name: str
    messages: int


@dataclass(frozen=True, slots=True)
class Kept:
    mailboxes: tuple[MailboxKept, ...]
    copies: int
    messages: int
    """Distinct messages: a mail in several mailboxes is stored once."""
    copied_bytes: int
    """Original size of all copies."""
    stored_bytes: int
    """Size of all packs of the archive on disk."""
    broken: tuple[tuple[str, int], ...]
    """Messages archived despite parsing problems, by problem; the most frequent first."""
    skipped: tuple[tuple[str, int], ...]
    """Number of skipped messages, by rule."""
    unfetched: tuple[tuple[str, int], ...]
    """Number of dead letters, by reason."""


_MAILBOXES = """
    SELECT b.address, coalesce(c.copies, 0) AS copies, coalesce(c.folders, 0) AS folders, coalesce(s.n, 0) AS skipped,
        coalesce(d.n, 0) AS dead_letters, coalesce(u.n, 0) AS missing
    FROM mailboxes b
    LEFT JOIN (SELECT mailbox_id, CAST(sum(copies) AS bigint) AS copies, count(*) AS folders FROM (
                   SELECT mailbox_id, folder, count(*) AS copies FROM message_copies
                   WHERE deleted_at IS NULL AND mailbox_id = ANY(ARRAY(SELECT id FROM mailboxes WHERE source_id = :id))
                   GROUP BY 1, 2) AS folders
               GROUP BY 1) c ON c.mailbox_id = b.id
    LEFT JOIN (SELECT mailbox_id, count(*) AS n FROM skipped_messages GROUP BY 1) s ON s.mailbox_id = b.id
    LEFT JOIN (SELECT mailbox_id, count(*) AS n FROM dead_letters WHERE kind = 'message' GROUP BY 1) d ON d.mailbox_id = b.id
    LEFT JOIN (SELECT mailbox_id, count(*) AS n FROM unaccounted_keys GROUP BY 1) u ON u.mailbox_id = b.id
    WHERE b.source_id = :id ORDER BY lower(b.address)"""

_COPIES = """
    SELECT coalesce(sum(c.copies), 0)::bigint AS copies, count(*) AS messages,
        coalesce(sum(c.copies * m.size_bytes), 0)::bigint AS bytes
    FROM (SELECT message_id, count(*) AS copies FROM message_copies
          WHERE deleted_at IS NULL AND mailbox_id = ANY(ARRAY(SELECT id FROM mailboxes WHERE source_id = :id))
          GROUP BY 1) AS c
    JOIN messages m ON m.id = c.message_id"""

_STORED = "SELECT coalesce(sum(size_bytes), 0)::bigint FROM packs WHERE state <> 'retired'"

_BROKEN = """
    SELECT defect AS name, count(DISTINCT m.id) AS messages
    FROM messages m, jsonb_array_elements_text(m.defects) AS defect
    WHERE m.defects <> '[]' AND EXISTS (SELECT 1 FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
                  WHERE c.message_id = m.id AND b.source_id = :id)
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 12"""

_SKIPPED = """
    SELECT s.rule AS name, count(*) AS messages FROM skipped_messages s JOIN mailboxes b ON b.id = s.mailbox_id
    WHERE b.source_id = :id GROUP BY 1 ORDER BY 2 DESC, 1"""

_UNFETCHED = """
    SELECT reason AS name, count(*) AS messages FROM dead_letters WHERE source_id = :id AND kind = 'message'
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 12"""


def kept(connection: Connection, source_id: UUID) -> Kept:
    copies = query_one(connection, _COPIES, KeptCopies, id=source_id)
    return Kept(
        mailboxes=tuple(query(connection, _MAILBOXES, MailboxKept, id=source_id)),
        copies=copies.copies,
        messages=copies.messages,
        copied_bytes=copies.bytes,
        stored_bytes=query_one(connection, _STORED, int),
        broken=tuple(query(connection, _BROKEN, NamedCount, id=source_id)),
        skipped=tuple(query(connection, _SKIPPED, NamedCount, id=source_id)),
        unfetched=tuple(query(connection, _UNFETCHED, NamedCount, id=source_id)),
    )
