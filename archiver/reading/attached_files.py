"""Attachments across messages: all of a conversation or of a search, and who else has the same file. Only of visible mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query

# An image that the text of a mail shows, such as the logo of a signature, is no file that a reader looks for.
_FILES = """
    SELECT a.message_id, a.position AS number, coalesce(a.name, '') AS name, a.media_type AS content_type, f.size_bytes,
        encode(a.attachment_sha256, 'hex') AS sha256, m.subject, m.sender, m.sort_at AS date
    FROM message_attachments a JOIN attachments f ON f.sha256 = a.attachment_sha256 JOIN messages m ON m.id = a.message_id
    WHERE a.message_id = ANY(:ids) AND NOT (a.is_inline AND a.content_id IS NOT NULL)
        AND {seen} AND {state} IN ('full', 'partial')
    ORDER BY array_position(:ids, a.message_id), a.position LIMIT :limit"""
_HOLDERS = """
    SELECT DISTINCT ON (m.sort_at, m.id) m.id, m.subject, m.sender, m.sort_at AS date, a.name,
        ARRAY(SELECT DISTINCT b.address FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
            WHERE c.message_id = m.id AND {copies} ORDER BY 1 LIMIT 5) AS mailboxes
    FROM message_attachments a JOIN messages m ON m.id = a.message_id
    WHERE a.attachment_sha256 = :sha256 AND m.id <> :id AND {seen} AND {state} IN ('full', 'partial')
    ORDER BY m.sort_at DESC, m.id LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class AttachedFile:
    message_id: UUID
    number: int
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    subject: str | None
    sender: str | None
    date: datetime


@dataclass(frozen=True, slots=True)
class FileHolder:
    """Another message that has the same file, byte for byte."""

    id: UUID
    subject: str | None
    sender: str | None
    date: datetime
    name: str | None
    mailboxes: list[str]


def of_messages(connection: Connection, scope: MailScope, ids: Sequence[UUID], limit: int) -> list[AttachedFile]:
    """The files of these messages, in their order, as far as the scope sees them and they have been read."""
    statement = _FILES.format(seen=scope.messages("m"), state=scope.search_state("m"))
    return query(connection, statement, AttachedFile, ids=list(ids), limit=limit, **scope.values())


def holders(connection: Connection, scope: MailScope, sha256: bytes, besides: UUID, limit: int) -> list[FileHolder]:
    """The other visible messages with this file, newest first."""
    statement = _HOLDERS.format(seen=scope.messages("m"), state=scope.search_state("m"), copies=scope.copies("c"))
    return query(connection, statement, FileHolder, sha256=sha256, id=besides, limit=limit, **scope.values())
