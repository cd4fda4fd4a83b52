"""Counts jobs that were added, done or failed, and their durations, in Redis, so that `/metrics` covers all processes and
machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict

import redis
import redis.asyncio

from archiver.queue.connection import sync_client

_COUNTS = "archiver:jobs:counts"
_SECONDS = "archiver:jobs:seconds"
_WRITE_SECONDS = 1.0


class JobFigures:
    """Records every event of a job in memory and writes them to Redis together, once a second."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def note(self, name: str, event: str, *, times: int = 1, seconds: float = 0.0) -> None:
        """`event`: added, done, delayed or failed."""
        self._counts[f"{name} {event}"] += times
        self._seconds[name] += seconds

    async def write(self) -> None:
        """Not retried if Redis fails: statistics are no reason to fail, and must not count twice."""
        counts, seconds = self._counts, self._seconds
        if not counts:
            return
        self._counts, self._seconds = Counter(), defaultdict(float)
        pipeline = self._client.pipeline(transaction=False)
        for field, times in counts.items():
            pipeline.hincrby(_COUNTS, field, times)
        for name, spent in seconds.items():
            if spent:
                pipeline.hincrbyfloat(_SECONDS, name, spent)
        with contextlib.suppress(redis.RedisError, OSError):
            await pipeline.execute()

    async def write_every_second(self) -> None:
        """Writes every second until it is cancelled."""
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            await self.write()


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
