"""Rate limits that all workers share: a bucket of units for each quota of a provider, in Redis.

A bucket holds a tenth of what a quota allows in a minute and fills with the other nine in that minute: so no minute, wherever
it begins, exceeds the quota. A caller that finds the bucket empty learns how long a good part of it takes to refill.
"""

from __future__ import annotations

from collections.abc import Sequence

import redis

from archiver.queue.connection import sync_client

_AWAY_SECONDS = 5.0
"""The pause of callers while Redis is down: without the shared buckets, no request may be sent."""

# A bucket is a hash: units; at (time of the last update, in seconds); share (the trusted part of the quota, initially 1); shut
# (closed until); strikes (consecutive pauses). KEYS: the buckets. ARGV: cost, limit, then units per minute for each bucket.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local cost, turns, wait = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
local limit, found = turns, {}
for i, key in ipairs(KEYS) do
    local kept = redis.call('HMGET', key, 'units', 'at', 'share', 'shut')
    local at = tonumber(kept[2] or now)
    local passed = math.max(0, now - at)
    local share = math.min(1, tonumber(kept[3] or 1) + passed / 3600)
    local quota = tonumber(ARGV[2 + i]) * share
    local rate, room = quota * 0.9 / 60, math.max(quota * 0.1, cost)
    local units = math.min(room, tonumber(kept[1] or room) + passed * rate)
    local shut = tonumber(kept[4] or 0) - now
    found[i] = {units, share}
    if shut > 0 then
        turns, wait = 0, math.max(wait, shut)
    else
        turns = math.min(turns, math.floor(units / cost))
        wait = math.max(wait, (math.max(cost, math.min(limit * cost, room * 0.7)) - units) / rate)
    end
end
for i, key in ipairs(KEYS) do
    redis.call('HSET', key, 'units', found[i][1] - turns * cost, 'at', now, 'share', found[i][2])
    redis.call('EXPIRE', key, 86400)
end
return {turns, tostring(wait)}
"""

# Requests that are refused at the same time count once: the share shrinks a single time. ARGV: seconds, or 0.
_SHUT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local kept = redis.call('HMGET', KEYS[1], 'share', 'shut', 'strikes')
local share, shut, strikes = tonumber(kept[1] or 1), tonumber(kept[2] or 0), tonumber(kept[3] or 0)
local pause = tonumber(ARGV[1])
if now >= shut then
    strikes = (now - shut < 60) and math.min(strikes + 1, 6) or 0
    share = math.max(0.1, share * 0.8)
end
if pause <= 0 then pause = math.max(shut - now, 2 ^ strikes) end
redis.call('HSET', KEYS[1], 'share', share, 'shut', math.max(shut, now + pause), 'strikes', strikes, 'units', 0, 'at', now)
redis.call('EXPIRE', KEYS[1], 86400)
return tostring(math.max(shut - now, pause))
"""


class Buckets:
    """Thread-safe. Without a Redis server there are no other workers to share with, and no limit."""

    def __init__(self, redis_url: str | None = None) -> None:
        self._client = sync_client(redis_url) if redis_url else None
        if self._client is not None:
            self._take = self._client.register_script(_TAKE)
            self._shut = self._client.register_script(_SHUT)

    def take(self, quotas: Sequence[tuple[str, float]], cost: float, limit: int) -> tuple[int, float]:
        """Takes `cost` units up to `limit` times from each bucket (name, units per minute). Returns how many times it succeeded
        and, if none, after how many seconds a retry is worthwhile."""
        if self._client is None:
            return limit, 0.0
        keys, rates = [_key(name) for name, _ in quotas], [rate for _, rate in quotas]
        try:
            turns, wait = self._take(keys=keys, args=[cost, limit, *rates])
        except redis.RedisError:
            return 0, _AWAY_SECONDS
        return int(turns), 0.0 if int(turns) else max(0.05, float(wait))

    def back_off(self, name: str, seconds: float | None) -> float:
        """Closes the bucket for the given time (1, 2, 4 … 64 seconds if None) and trusts a fifth less of the quota, which
        recovers by a sixtieth of the quota per minute. Returns the pause."""
        if self._client is None:
            return seconds or _AWAY_SECONDS
        try:
            return float(self._shut(keys=[_key(name)], args=[seconds or 0]))
        except redis.RedisError:
            return seconds or _AWAY_SECONDS

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _key(name: str) -> str:
    return f"archiver:bucket:{name}"
