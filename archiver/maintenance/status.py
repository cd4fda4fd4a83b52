"""The state of the archive: what is in it, and what is waiting."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db.sql import query, query_one
from archiver.indexing import jobs as index_jobs
from archiver.indexing.indexes import load_indexes
from archiver.queue.jobs import QueueName, ReindexJob
from archiver.queue.queues import JobQueues

_COUNTS = """
SELECT (SELECT count(*) FROM ingestion_sources WHERE removed_at IS NULL) AS sources,
       (SELECT count(*) FROM mailboxes) AS mailboxes,
       (SELECT count(*) FROM mailboxes WHERE gone_at IS NOT NULL) AS gone_mailboxes,
       (SELECT count(*) FROM messages) AS messages,
       (SELECT coalesce(sum(size_bytes), 0)::bigint FROM messages) AS bytes,
       (SELECT count(*) FROM messages WHERE indexed_version < index_version) AS not_indexed,
       (SELECT count(*) FROM messages WHERE search_state = 'body') AS attachments_waiting,
       (SELECT coalesce(floor(extract(epoch FROM now() - min(archived_at))), 0)::bigint FROM messages
        WHERE indexed_version < index_version AND search_state = 'pending') AS index_lag_seconds,
       (SELECT count(*) FROM sync_sessions) AS running_sessions,
       (SELECT count(*) FROM outbox) AS outbox,
       (SELECT count(*) FROM dead_letters WHERE discarded_at IS NULL) AS dead_letters
"""


@dataclass(frozen=True, slots=True)
class Overview:
    sources: int
    mailboxes: int
    gone_mailboxes: int
    """Those that their source no longer lists."""
    messages: int
    bytes: int
    not_indexed: int
    attachments_waiting: int
    """Messages that are searchable, but not yet by their attachments."""
    index_lag_seconds: int
    """The age of the oldest message that is not searchable yet."""
    running_sessions: int
    outbox: int
    dead_letters: int


def count_rows(engine: Engine) -> Overview:
    with engine.connect() as connection:
        return query_one(connection, _COUNTS, Overview)


def count_jobs(redis_url: str) -> dict[str, dict[str, int]]:
    """Jobs by queue and state."""

    async def count() -> dict[str, dict[str, int]]:
        async with JobQueues(redis_url) as queues:
            return {str(name): await queues.counts(name) for name in QueueName}

    return asyncio.run(count())


def workers_alive(redis_url: str) -> dict[str, list[str]]:
    """Connected worker processes, by queue."""

    async def collect() -> dict[str, list[str]]:
        async with JobQueues(redis_url) as queues:
            return {str(name): await queues.listening(name) for name in QueueName}

    return asyncio.run(collect())


_WAITING = """
    SELECT (SELECT count(*) FROM messages) AS messages, count(*) AS waiting,
        coalesce(floor(extract(epoch FROM now() - min(archived_at)
            FILTER (WHERE search_state = 'pending'))), 0)::bigint AS lag_seconds
    FROM messages WHERE indexed_version < index_version"""
_STATES = "SELECT search_state, count(*) AS messages FROM messages WHERE search_state <> 'full' GROUP BY 1"
STATUS_STATEMENTS = {"counts": _COUNTS, "waiting": _WAITING, "search states": _STATES}


@dataclass(frozen=True, slots=True)
class WaitingMessages:
    messages: int
    waiting: int
    lag_seconds: int


class StateCount(NamedTuple):
    search_state: str
    messages: int


@dataclass(frozen=True, slots=True)
class IndexState:
    messages: int
    waiting: int
    """Messages that are new or changed since they were last indexed."""
    states: dict[str, int]
    """Messages that are not completely searchable, by state: pending, body, partial, failed."""
    lag_seconds: int = 0
    """The age of the oldest message that is not searchable yet."""
    reindexed: int | None = None
    reindex_total: int | None = None
    """The progress of a running reindex."""


def index_figures(engine: Engine) -> IndexState | None:
    """None while the database is down, or not migrated yet."""
    try:
        return index_state(engine)
    except DBAPIError:
        return None


def index_state(engine: Engine) -> IndexState:
    with engine.connect() as connection:
        counted = query_one(connection, _WAITING, WaitingMessages)
        building = load_indexes(connection).building
        states = query(connection, _STATES, StateCount)
    return IndexState(
        counted.messages,
        counted.waiting,
        dict(states),
        counted.lag_seconds,
        min(building.done, building.total) if building else None,
        building.total if building else None,
    )


def request_reindex(connection: Connection, principal: Principal) -> None:
    """Queues one reindex, however often it is requested."""
    index_jobs.announce_once(connection, ReindexJob())
    audit.record(connection, principal, "index.reindex_requested", "index")
