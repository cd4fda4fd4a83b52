"""How the archive stands: what is in it, and what waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sqlalchemy import Engine, text

from archiver.queue.jobs import QueueName
from archiver.queue.queues import JobQueues

_COUNTS = """
SELECT (SELECT count(*) FROM ingestion_sources WHERE removed_at IS NULL) AS sources,
       (SELECT count(*) FROM mailboxes) AS mailboxes,
       (SELECT count(*) FROM messages) AS messages,
       (SELECT coalesce(sum(size_bytes), 0) FROM messages) AS bytes,
       (SELECT count(*) FROM messages WHERE indexed_version < index_version) AS not_indexed,
       (SELECT count(*) FROM sync_sessions) AS running_sessions,
       (SELECT count(*) FROM outbox) AS outbox,
       (SELECT count(*) FROM dead_letters WHERE discarded_at IS NULL) AS dead_letters
"""


@dataclass(frozen=True, slots=True)
class Overview:
    sources: int
    mailboxes: int
    messages: int
    bytes: int
    not_indexed: int
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
