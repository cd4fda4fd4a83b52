"""The source of journalled mail in Postgres: its mailboxes, and how much arrived when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.ids import uuid7
from archiver.db.sql import query_one, query_optional, rows, run

KIND = "journal"
_NAMES = ("Journal", "Journal (SMTP)")

_FIND_SOURCE = "SELECT id FROM ingestion_sources WHERE kind = 'journal' AND removed_at IS NULL ORDER BY id LIMIT 1"
_ADD_SOURCE = """
    INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:id, 'journal', :name, 'imported')
    ON CONFLICT (lower(name)) WHERE removed_at IS NULL DO NOTHING"""
_FIND_MAILBOX = "SELECT id FROM mailboxes WHERE source_id = :source_id AND lower(address) = lower(:address)"
_ADD_MAILBOX = """
    INSERT INTO mailboxes (id, source_id, address) VALUES (:id, :source_id, :address)
    ON CONFLICT (source_id, lower(address)) DO NOTHING"""
_ACTIVITY = """
    SELECT id, sync_state AS state, last_finished_at AS last_message_at FROM ingestion_sources
    WHERE kind = 'journal' AND removed_at IS NULL ORDER BY id LIMIT 1"""
_RECORD = """
    UPDATE ingestion_sources SET last_started_at = coalesce(last_started_at, now()), last_finished_at = :at,
        sync_state = sync_state || :state::jsonb WHERE id = :id"""


@dataclass(frozen=True, slots=True)
class JournalRow:
    id: UUID
    state: dict[str, Any]
    last_message_at: datetime | None


def ensure_source(connection: Connection) -> UUID:
    """The source of journalled mail, created with the first message. An administrator may rename or remove it."""
    for name in _NAMES:
        if (found := query_optional(connection, _FIND_SOURCE, UUID)) is not None:
            return found
        run(connection, _ADD_SOURCE, id=uuid7(), name=name)
    return query_one(connection, _FIND_SOURCE, UUID)


def ensure_mailbox(connection: Connection, source_id: UUID, address: str) -> UUID:
    found = query_optional(connection, _FIND_MAILBOX, UUID, source_id=source_id, address=address)
    if found is not None:
        return found
    run(connection, _ADD_MAILBOX, id=uuid7(), source_id=source_id, address=address)
    return query_one(connection, _FIND_MAILBOX, UUID, source_id=source_id, address=address)


def load_activity(connection: Connection) -> JournalRow | None:
    return query_optional(connection, _ACTIVITY, JournalRow)


def record_activity(connection: Connection, source_id: UUID, at: datetime, minutes: dict[str, int]) -> None:
    run(connection, _RECORD, id=source_id, at=at, state=rows({"minutes": minutes}))
