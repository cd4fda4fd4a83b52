"""Mailboxes that are watched for new mail, and the cycles that notifications start."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, query_one
from archiver.queue.jobs import ContinuousSync
from archiver.sync import outbox

_WATCHED = """
    SELECT m.id, m.source_id, m.address, m.display_name, m.provider_id,
        md5(CAST(s.settings AS text) || encode(coalesce(s.credentials, ''), 'hex')) AS source_version
    FROM mailboxes m
    JOIN ingestion_sources s ON s.id = m.source_id
    WHERE s.kind = ANY(:kinds) AND s.removed_at IS NULL AND s.status IN ('active', 'syncing')
        AND s.settings->>'watch' = 'true' AND m.gone_at IS NULL
    ORDER BY m.id"""
_BUSY = """
    SELECT EXISTS (SELECT 1 FROM sync_sessions WHERE ingestion_source_id = :source)
        OR EXISTS (SELECT 1 FROM outbox WHERE source_id = :source AND job IN ('continuous-sync', 'initial-import'))"""


@dataclass(frozen=True, slots=True)
class WatchedMailbox:
    id: UUID
    source_id: UUID
    address: str
    display_name: str | None
    provider_id: str | None
    source_version: str
    """Changes whenever the source is edited."""


def load_watched(connection: Connection, kinds: Collection[str]) -> list[WatchedMailbox]:
    return query(connection, _WATCHED, WatchedMailbox, kinds=list(kinds))


def announce(connection: Connection, source_id: UUID, mailbox_ids: Collection[UUID]) -> bool:
    """Announces a cycle over these mailboxes only. False if another cycle is running or announced; call again when it ends."""
    if query_one(connection, _BUSY, bool, source=source_id):
        return False
    job = ContinuousSync(source_id, ",".join(map(str, sorted(mailbox_ids))))
    outbox.announce(connection, job, source_id=source_id)
    return True
