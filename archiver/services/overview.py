"""How the archive stands: what is in it, and what waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from archiver.queue.jobs import QueueName, Reindex
from archiver.queue.queues import JobQueues
from archiver.services import audit, index_jobs
from archiver.services.principal import Principal
from archiver.services.search_indexes import load_indexes

_COUNTS = """
SELECT (SELECT count(*) FROM ingestion_sources WHERE removed_at IS NULL) AS sources,
       (SELECT count(*) FROM mailboxes) AS mailboxes,
       (SELECT count(*) FROM mailboxes WHERE gone_at IS NOT NULL) AS gone_mailboxes,
       (SELECT count(*) FROM messages) AS messages,
       (SELECT coalesce(sum(size_bytes), 0) FROM messages) AS bytes,
       (SELECT count(*) FROM messages WHERE indexed_version < index_version) AS not_indexed,
       (SELECT count(*) FROM messages WHERE search_state = 'body') AS attachments_waiting,
       (SELECT coalesce(extract(epoch FROM now() - min(archived_at)), 0) FROM messages
        WHERE indexed_version < index_version) AS index_lag_seconds,
       (SELECT count(*) FROM sync_sessions) AS running_sessions,
       (SELECT count(*) FROM outbox) AS outbox,
       (SELECT count(*) FROM dead_letters WHERE discarded_at IS NULL) AS dead_letters
"""


@dataclass(frozen=True, slots=True)
class Overview:
    sources: int
    mailboxes: int
    gone_mailboxes: int
    """Those of them that their source does not list any more."""
    messages: int
    bytes: int
    not_indexed: int
    attachments_waiting: int
    """Messages that are found by what they say, and not yet by what is attached."""
    index_lag_seconds: int
    """How long ago the oldest message was archived whose document is behind."""
    running_sessions: int
    outbox: int
    dead_letters: int


def count_rows(engine: Engine) -> Overview:
    with engine.connect() as connection:
        return Overview(**{name: int(value) for name, value in connection.execute(text(_COUNTS)).mappings().one().items()})


def count_jobs(redis_url: str) -> dict[str, dict[str, int]]:
    """Jobs by queue and state."""

    async def count() -> dict[str, dict[str, int]]:
        async with JobQueues(redis_url) as queues:
            return {str(name): await queues.counts(name) for name in QueueName}

    return asyncio.run(count())


def workers_alive(redis_url: str) -> dict[str, list[str]]:
    """Worker processes that listen, by queue."""

    async def look() -> dict[str, list[str]]:
        async with JobQueues(redis_url) as queues:
            return {str(name): await queues.listening(name) for name in QueueName}

    return asyncio.run(look())


@dataclass(frozen=True, slots=True)
class IndexState:
    messages: int
    waiting: int
    """Messages that changed since they were sent to the index, new ones too."""
    states: dict[str, int]
    """Messages by how far they can be found: pending, body, partial, failed; the rest is full."""
    lag_seconds: int = 0
    """How long ago the oldest of those that wait was archived."""
    reindexed: int | None = None
    reindex_total: int | None = None
    """How far a reindex is that runs."""


def index_figures(engine: Engine) -> IndexState | None:
    """For those who can do without: None while the database is away, or not set up yet."""
    try:
        return index_state(engine)
    except DBAPIError:
        return None


def index_state(engine: Engine) -> IndexState:
    with engine.connect() as connection:
        counted = connection.execute(
            text(
                "SELECT (SELECT count(*) FROM messages) AS messages,"
                " (SELECT count(*) FROM messages WHERE indexed_version < index_version) AS waiting,"
                " (SELECT coalesce(extract(epoch FROM now() - min(archived_at)), 0) FROM messages"
                "  WHERE indexed_version < index_version) AS lag_seconds"
            )
        ).one()
        building = load_indexes(connection).building
        states = connection.execute(
            text("SELECT search_state, count(*) FROM messages WHERE search_state <> 'full' GROUP BY 1")
        ).all()
    return IndexState(
        counted.messages,
        counted.waiting,
        {str(state): int(count) for state, count in states},
        int(counted.lag_seconds),
        min(building.done, building.total) if building else None,
        building.total if building else None,
    )


def request_reindex(connection: Connection, who: Principal) -> None:
    """Once, however often it is asked for."""
    index_jobs.announce_once(connection, Reindex())
    audit.record(connection, who, "index.reindex_requested", "index")
