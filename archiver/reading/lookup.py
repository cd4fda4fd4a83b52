"""Finds what a command names: a message with its copies and its original bytes, or a mailbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from archiver.access.scope import EVERYTHING
from archiver.db.sql import query, query_optional
from archiver.errors import NotFound, UsageError
from archiver.reading import messages
from archiver.store.archive import Archive

_MESSAGE = """
    SELECT id, encode(sha256, 'hex') AS sha256, internet_message_id AS message_id, sort_at AS date, sender, subject,
        size_bytes AS bytes, archived_at FROM messages WHERE id = :id"""
_COPIES = """
    SELECT b.address AS mailbox, c.folder, c.flags, c.labels, c.gone_at, c.provider_key ~ '^api:[0-9a-f]{64}$' AS handed_in
    FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
    WHERE c.message_id = :id AND c.deleted_at IS NULL ORDER BY b.address, c.folder"""
_MAILBOXES = "SELECT id FROM mailboxes WHERE lower(address) = lower(:address) ORDER BY id"


def raw_message(engine: Engine, archive: Archive, message_id: UUID) -> Iterator[bytes]:
    """The original bytes, piece by piece."""
    with engine.connect() as connection:
        sha256 = query_optional(connection, "SELECT sha256 FROM messages WHERE id = :id", bytes, id=message_id)
    if sha256 is None:
        raise NotFound(f"there is no message {message_id}")
    return archive.stream(sha256)


def message_summary(engine: Engine, message_id: UUID) -> dict[str, Any]:
    """What a message is, and where its copies are."""
    with engine.connect() as connection:
        found = query_optional(connection, _MESSAGE, MessageSummary, id=message_id)
        copies = query(connection, _COPIES, CopySummary, id=message_id)
        variants = messages.variants(connection, EVERYTHING, message_id)
    if found is None:
        raise NotFound(f"there is no message {message_id}")
    message = {"from" if name == "sender" else name: value for name, value in asdict(found).items()}
    return {**message, "copies": [asdict(copy) for copy in copies], "variants": [one.id for one in variants]}


@dataclass(frozen=True, slots=True)
class MessageSummary:
    """In the order in which it is shown."""

    id: UUID
    sha256: str
    message_id: str | None
    date: datetime
    sender: str | None
    subject: str | None
    bytes: int
    archived_at: datetime


@dataclass(frozen=True, slots=True)
class CopySummary:
    mailbox: str
    folder: str
    flags: list[str]
    labels: list[str]
    gone_at: datetime | None
    handed_in: bool


def find_mailbox(engine: Engine, given: str) -> UUID:
    """By its id, or by its address if only one source has it."""
    try:
        return UUID(given)
    except ValueError:
        pass
    with engine.connect() as connection:
        ids = query(connection, _MAILBOXES, UUID, address=given)
    if not ids:
        raise NotFound(f"there is no mailbox {given}")
    if len(ids) > 1:
        raise UsageError(f"{len(ids)} sources have a mailbox {given}: give its id, one of {', '.join(map(str, ids))}")
    return ids[0]
