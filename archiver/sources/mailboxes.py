"""Opens one mailbox of a source for a slice: its row, its dead letters, and the connector that reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.config import Settings
from archiver.db.sql import query_one
from archiver.sources import imports
from archiver.sources.access import open_source, save_credentials
from archiver.sources.rows import SOURCE_COLUMNS, Source
from archiver.store.journal import Origin
from archiver.sync.connector_context import ConnectorContext
from archiver.sync.heartbeat import Heartbeat
from archiver.sync.mailbox_slice import REFETCH_LIMIT, LoadedMailbox, MailboxSlice
from archiver.sync.resources import SyncResources
from archiver.sync.sessions import Slice
from connectors.base import Quota

# One statement, because it runs for each mailbox of a cycle.
_LOAD = f"""
    SELECT {SOURCE_COLUMNS}, m.address, m.display_name, m.provider_id, m.sync_state,
    m.failures > 0 OR m.next_due_at IS NOT NULL OR m.status_message IS NOT NULL AS has_failed,
    ARRAY(SELECT coalesce(payload->>'provider_key', provider_key) FROM dead_letters WHERE kind = 'message'
          AND mailbox_id = :id AND discarded_at IS NULL AND next_try_at <= now() ORDER BY next_try_at LIMIT :limit) AS due
    FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :id"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class SourceWithMailbox(Source):
    """A source, and the mailbox of it that is read."""

    address: str
    display_name: str | None
    provider_id: str | None
    sync_state: dict[str, Any]
    has_failed: bool
    due: list[str]


def load_mailbox(connection: Connection, mailbox_id: UUID, session_id: UUID) -> tuple[Source, LoadedMailbox]:
    row = query_one(connection, _LOAD, SourceWithMailbox, id=mailbox_id, limit=REFETCH_LIMIT)
    source = imports.with_import_settings(connection, row, session_id)
    is_import = source is not row
    origin = Origin(source.id, source.kind, source.name, mailbox_id, row.address, row.display_name, row.provider_id)
    return source, LoadedMailbox(origin, row.sync_state, row.has_failed, row.due, imports.deleted_keys if is_import else None)


@contextmanager
def open_mailbox(resources: SyncResources, held: Slice, source: Source, loaded: LoadedMailbox) -> Iterator[MailboxSlice]:
    heartbeat = Heartbeat(resources.engine, held.session_id, held.mailbox_id)
    context = connector_context(resources, source, heartbeat)
    connector = open_source(source, resources.keyring, context)
    with resources.idle_guard.guard(connector, context, resources.settings.connector_idle_seconds) as guarded:
        yield MailboxSlice(resources, held, loaded, connector, context, guarded, time.monotonic())


def connector_context(resources: SyncResources, source: Source, heartbeat: Heartbeat) -> ConnectorContext:
    save = partial(save_credentials, resources.engine, resources.keyring, source)
    return ConnectorContext(resources, source.id, save, heartbeat.progress, imap_quotas(resources.settings, source))


def imap_quotas(settings: Settings, source: Source) -> list[Quota]:
    """The limits of this installation for an IMAP source: those of its server, and those of its owner. None for other kinds,
    whose providers have quotas of their own."""
    if source.kind != "imap":
        return []
    server = str(source.settings.get("host", "")).lower()
    limits = {
        f"imap:server:{server}": settings.imap_server_messages_per_minute,
        f"imap:owner:{source.owner_id}": settings.imap_owner_messages_per_minute,
    }
    return [Quota(name, limit) for name, limit in limits.items() if limit]
