"""Redis clients, with the settings that BullMQ for Python needs.

The numbers avoid two traps: redis-py 8 gives up on a read after 5 s by default, while the worker blocks for 5 s and
QueueEvents for 10; and BullMQ's own retry sleeps up to 20 s after a lost connection.
"""

from __future__ import annotations

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.retry import Retry

_TROUBLE: list[type[Exception]] = [
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
]
_LONGER_THAN_ANY_BLOCK = 20
_FOREVER = 10**9


def worker_client(url: str) -> redis.asyncio.Redis:
    """For a worker: waits for a lost server indefinitely, and reconnects within a quarter of a second."""
    return redis.asyncio.from_url(
        url,
        decode_responses=True,
        socket_timeout=_LONGER_THAN_ANY_BLOCK,
        retry=AsyncRetry(ConstantBackoff(0.25), _FOREVER),
        retry_on_error=_TROUBLE,
    )


def request_client(url: str) -> redis.asyncio.Redis:
    """For callers that wait for a response: gives up soon."""
    return redis.asyncio.from_url(url, decode_responses=True, socket_timeout=5, retry=AsyncRetry(ConstantBackoff(0.1), 3))


def sync_client(url: str) -> redis.Redis:
    """For lookups outside an event loop: gives up soon."""
    return redis.from_url(url, decode_responses=True, socket_timeout=2, retry=Retry(ConstantBackoff(0.1), 1))
