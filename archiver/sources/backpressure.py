"""Backpressure: bulk work of the heaviest owners is refused while too much waits, so that everything else stays quick.

Two things are measured: how long the oldest message has waited to be indexed, and how many bytes of uploads wait to be
imported. Searches, sign-ins, syncs and single messages are never refused for either; a disk that is nearly full is checked
elsewhere (`archiver/store/capacity.py`). Owners whose mail does not wait are not refused, whatever others do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.adaptive_cache import Remembered
from archiver.config import Settings
from archiver.db.sql import query, query_one
from archiver.errors import TooMany

_SAMPLE = 5_000
_CACHE_SECONDS = 2.0
_WINDOW_SECONDS = 300.0
_SHORTEST_TREND_SECONDS = 20.0
_SOONEST_SECONDS, _LATEST_SECONDS = 10, 3600
_UNKNOWN_SECONDS = 300
"""The pause while nothing is known about how fast the backlog shrinks."""
_GROWING_SECONDS = 900
"""The pause while it does not shrink."""

# Whose mail is at the front of the backlog. A sample, because the backlog may be millions of messages.
_WAITING = """
    WITH oldest AS MATERIALIZED (
        SELECT id FROM messages WHERE indexed_version < index_version AND search_state = 'pending'
        ORDER BY archived_at, id LIMIT :sample)
    SELECT s.owner_id, count(*) AS amount FROM oldest, LATERAL (
        SELECT c.mailbox_id FROM message_copies c WHERE c.message_id = oldest.id LIMIT 1) AS copy
    JOIN mailboxes m ON m.id = copy.mailbox_id JOIN ingestion_sources s ON s.id = m.source_id GROUP BY 1"""
_LAG = """
    SELECT coalesce(extract(epoch FROM now() - min(archived_at)), 0)::float8 FROM messages
    WHERE indexed_version < index_version AND search_state = 'pending'"""
_SPOOL = """
    SELECT u.user_id AS owner_id, sum(u.size_bytes)::bigint AS amount FROM uploads u
    LEFT JOIN imports i ON i.id = u.import_id WHERE i.outcome IS DISTINCT FROM 'success' GROUP BY 1"""
_PEOPLE = "SELECT id, email FROM users WHERE id = ANY(:ids)"


class Backlog(TooMany):
    code = "backlog"


@dataclass(frozen=True, slots=True)
class OwnerAmount:
    owner_id: UUID | None
    amount: int


@dataclass(frozen=True, slots=True)
class OwnerName:
    id: UUID
    email: str


@dataclass(frozen=True, slots=True)
class Pressure:
    lag_seconds: float
    """The age of the oldest message that is not searchable yet."""
    waiting: Mapping[UUID | None, int]
    """Messages at the front of the backlog, by owner; None for sources of the installation."""
    spool: Mapping[UUID | None, int]
    """Bytes of uploads that are not imported yet, by owner."""

    @property
    def spool_bytes(self) -> int:
        return sum(self.spool.values())


@dataclass(frozen=True, slots=True)
class PressureLimits:
    lag_seconds: int
    spool_bytes: int
    """0 for no limit."""


@dataclass(frozen=True, slots=True)
class BacklogReason:
    measure: str
    over: float
    """By how much the limit is exceeded."""
    text: str


def refusal(pressure: Pressure, limits: PressureLimits, owner: UUID | None, more_bytes: int = 0) -> BacklogReason | None:
    """Pure. Why bulk work of this owner is refused now; None if it is not."""
    return _by_lag(pressure, limits.lag_seconds, owner) or _by_spool(pressure, limits.spool_bytes, owner, more_bytes)


def _by_lag(pressure: Pressure, limit: int, owner: UUID | None) -> BacklogReason | None:
    """At the limit, an owner of half of the backlog is refused; at twice the limit of a quarter, and so on."""
    over, mine = pressure.lag_seconds - limit, pressure.waiting.get(owner, 0)
    if not limit or over <= 0 or not mine:
        return None
    part = mine / sum(pressure.waiting.values())
    if part < limit / pressure.lag_seconds / 2:
        return None
    minutes = round(pressure.lag_seconds / 60)
    text = f"the oldest message has waited {minutes} minutes to be indexed, and {part:.0%} of what waits longest is yours"
    return BacklogReason("lag", over, f"{text}: try again when the backlog is smaller")


def _by_spool(pressure: Pressure, limit: int, owner: UUID | None, more_bytes: int) -> BacklogReason | None:
    """Who stays within an equal part of the limit is never refused."""
    over = pressure.spool_bytes + more_bytes - limit
    mine = pressure.spool.get(owner, 0) + more_bytes
    owners = len({*pressure.spool, owner})
    if not limit or not more_bytes or over <= 0 or mine <= limit / owners:
        return None
    total, own = pressure.spool_bytes / 1e9, pressure.spool.get(owner, 0) / 1e9
    text = f"{total:,.1f} GB of uploads wait to be imported, {own:,.1f} GB of them yours"
    return BacklogReason("spool", over, f"{text}: import or remove some first, or try again later")


def measure(connection: Connection) -> Pressure:
    lag = query_one(connection, _LAG, float)
    waiting = query(connection, _WAITING, OwnerAmount, sample=_SAMPLE) if lag else []
    spool = query(connection, _SPOOL, OwnerAmount)
    return Pressure(lag, {row.owner_id: row.amount for row in waiting}, {row.owner_id: row.amount for row in spool})


@dataclass(slots=True)
class Trend:
    """How a measure changed within the last minutes, and so when it will be below its limit. Thread-safe."""

    clock: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, float]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, value: float) -> None:
        with self._lock:
            now = self.clock()
            self._samples.append((now, value))
            while self._samples and self._samples[0][0] < now - _WINDOW_SECONDS:
                self._samples.popleft()

    def seconds_until(self, over: float) -> int:
        """An honest Retry-After: by the rate at which the measure falls; long if it does not."""
        with self._lock:
            first, last = (self._samples[0], self._samples[-1]) if self._samples else ((0.0, 0.0), (0.0, 0.0))
        passed = last[0] - first[0]
        if passed < _SHORTEST_TREND_SECONDS:
            return _UNKNOWN_SECONDS
        falls = (first[1] - last[1]) / passed
        return _GROWING_SECONDS if falls <= 0 else round(min(_LATEST_SECONDS, max(_SOONEST_SECONDS, over / falls)))


@dataclass(frozen=True, slots=True)
class OwnerLoad:
    name: str | None
    """None for the installation itself."""
    waiting_share: float
    spool_bytes: int
    is_refused: bool


class Backpressure:
    """One per process that accepts uploads."""

    def __init__(self, settings: Settings) -> None:
        self.limits = PressureLimits(settings.backpressure_lag_seconds, settings.backpressure_spool_bytes)
        self._measured: Remembered[Pressure] = Remembered(_CACHE_SECONDS)
        self._trends = {"lag": Trend(), "spool": Trend()}

    def admit(self, engine: Engine, owner: UUID | None, more_bytes: int = 0) -> None:
        """Call before bulk work begins. Raises Backlog if this owner has to wait."""
        pressure = self.pressure(engine)
        found = refusal(pressure, self.limits, owner, more_bytes)
        if found is not None:
            raise Backlog(found.text, self._trends[found.measure].seconds_until(found.over))

    def pressure(self, engine: Engine) -> Pressure:
        return self._measured.get("pressure", lambda: self._measure(engine))

    def _measure(self, engine: Engine) -> Pressure:
        with engine.connect() as connection:
            found = measure(connection)
        self._trends["lag"].add(found.lag_seconds)
        self._trends["spool"].add(found.spool_bytes)
        return found

    def owners(self, engine: Engine) -> list[OwnerLoad]:
        """Those of whom something waits, the heaviest first."""
        pressure = self.pressure(engine)
        ids = {*pressure.waiting, *pressure.spool}
        with engine.connect() as connection:
            names = {one.id: one.email for one in query(connection, _PEOPLE, OwnerName, ids=[one for one in ids if one])}
        total = sum(pressure.waiting.values()) or 1
        loads = [
            OwnerLoad(
                names.get(one) if one else None,
                pressure.waiting.get(one, 0) / total,
                pressure.spool.get(one, 0),
                refusal(pressure, self.limits, one, 1) is not None,
            )
            for one in ids
        ]
        return sorted(loads, key=lambda load: (-load.waiting_share, -load.spool_bytes))
