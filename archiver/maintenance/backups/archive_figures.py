"""What an archive contains, as a few numbers and digests: two databases with equal figures have the same mail."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection

from archiver.db.sql import query, query_one

# In 256 parts by one byte of the hash, each of which Postgres can sort and digest in memory.
_MESSAGES = """
    SELECT sha256(string_agg(sha256, '' ORDER BY sha256)) AS digest FROM messages
    GROUP BY get_byte(sha256, 0) ORDER BY get_byte(sha256, 0)"""
_COPIES = """
    SELECT sha256(string_agg(unit, '' ORDER BY unit)) AS digest FROM (
        SELECT DISTINCT uuid_send(message_id) || uuid_send(mailbox_id) AS unit FROM message_copies
        WHERE deleted_at IS NULL AND message_id IS NOT NULL) AS units
    GROUP BY get_byte(unit, 15) ORDER BY get_byte(unit, 15)"""
_COUNTS = """
    SELECT (SELECT count(*) FROM messages) AS messages,
        (SELECT count(*) FROM message_copies WHERE deleted_at IS NULL AND message_id IS NOT NULL) AS copies,
        (SELECT count(*) FROM mailboxes) AS mailboxes"""


@dataclass(frozen=True, slots=True)
class ArchiveCounts:
    messages: int
    copies: int
    mailboxes: int


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    messages: int
    copies: int
    mailboxes: int
    message_digest: str
    """Of the SHA-256 of all messages."""
    copy_digest: str
    """Of which messages are in which mailboxes."""


def archive_figures(connection: Connection) -> ArchiveFigures:
    counts = query_one(connection, _COUNTS, ArchiveCounts)
    messages, copies = query(connection, _MESSAGES, bytes), query(connection, _COPIES, bytes)
    return ArchiveFigures(counts.messages, counts.copies, counts.mailboxes, _join(messages), _join(copies))


def _join(digests: list[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()
