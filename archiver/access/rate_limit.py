"""Limits the requests per minute of a client: counted in Redis, for all web processes together."""

from __future__ import annotations

import time
from dataclasses import dataclass

import redis

from archiver.logs import get_logger

_WINDOW_SECONDS = 60
log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Allowance:
    limit: int
    used: int
    reset_seconds: int

    @property
    def exceeded(self) -> bool:
        return self.used > self.limit

    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(max(0, self.limit - self.used)),
            "RateLimit-Reset": str(self.reset_seconds),
            "RateLimit-Policy": f"{self.limit};w={_WINDOW_SECONDS}",
        }


def take(client: redis.Redis, caller: str, limit: int) -> Allowance | None:
    """Counts one request of `caller`. None without a limit, or while Redis is down, which must not lock all clients out."""
    if limit == 0:
        return None
    window, into = divmod(int(time.time()), _WINDOW_SECONDS)
    key = f"archiver:rate:{caller}:{window}"
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.incr(key)
            pipe.expire(key, _WINDOW_SECONDS + 5)
            used = int(pipe.execute()[0])
    except redis.RedisError as error:
        log.warning("rate_limit_unknown", error=type(error).__name__)
        return None
    return Allowance(limit, used, _WINDOW_SECONDS - into)
