"""How many jobs were added, done and failed, and how long they took: kept in Redis, so that `/metrics` can tell it for all
processes and machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import redis.asyncio

from archiver.queue.connection import sync_client

_COUNTS = "archiver:jobs:counts"
_SECONDS = "archiver:jobs:seconds"


class JobFigures:
    """The hook that everything which happens to a job goes through."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def count(self, events: Iterable[tuple[str, str]], seconds: float = 0.0) -> None:
        """`events`: (job name, what happened: added, done or failed)."""
        pipeline = self._client.pipeline(transaction=False)
        for (name, event), times in Counter(events).items():
            pipeline.hincrby(_COUNTS, f"{name} {event}", times)
            if seconds:
                pipeline.hincrbyfloat(_SECONDS, name, seconds)
        await pipeline.execute()


def read_figures(url: str) -> tuple[dict[tuple[str, str], int], dict[str, float]]:
    """Counts by (job name, event), and seconds by job name."""
    client = sync_client(url)
    try:
        counts, seconds = client.hgetall(_COUNTS), client.hgetall(_SECONDS)
    finally:
        client.close()
    assert isinstance(counts, dict)
    assert isinstance(seconds, dict)
    by_event = {}
    for field, value in counts.items():
        name, _, event = str(field).rpartition(" ")
        by_event[name, event] = int(value)
    return by_event, {str(name): float(value) for name, value in seconds.items()}
