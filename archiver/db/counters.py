"""Counts of one process, added up over all processes in Postgres: a restart of Redis or of a process does not lose them.

A counter is a name and labels. A histogram is a counter for each of its buckets, with the label `le`, and one for its sum.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, text

from archiver.db.engine import DATABASE_ERRORS

Labels = tuple[tuple[str, str], ...]
CounterKey = tuple[str, Labels]

WRITE_SECONDS = 5.0
"""What a killed process had not written yet is not counted."""
SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

# In order, so that two processes that write the same counters do not wait for each other in a circle.
_ADD = text("""
    INSERT INTO metric_counters AS c (name, labels, value)
    SELECT x.name, x.labels, x.value FROM unnest(CAST(:names AS text[]), CAST(:labels AS text[]), CAST(:values AS float8[]))
        AS x(name, labels, value) ORDER BY x.name, x.labels
    ON CONFLICT (name, labels) DO UPDATE SET value = c.value + excluded.value""")
_READ = text("SELECT name, labels, value FROM metric_counters")


@dataclass(slots=True)
class Counters:
    """Thread-safe."""

    _values: dict[CounterKey, float] = field(default_factory=lambda: defaultdict(float))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] += value

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Into one bucket; reading adds them up."""
        number = bisect_left(SECONDS_BUCKETS, seconds)
        bound = f"{SECONDS_BUCKETS[number]:g}" if number < len(SECONDS_BUCKETS) else "+Inf"
        self.add(f"{name}_bucket", 1.0, le=bound, **labels)
        self.add(f"{name}_sum", seconds, **labels)

    def take(self) -> dict[CounterKey, float]:
        with self._lock:
            taken, self._values = self._values, defaultdict(float)
        return taken

    def put_back(self, taken: dict[CounterKey, float]) -> None:
        with self._lock:
            for key, value in taken.items():
                self._values[key] += value

    def write(self, engine: Engine) -> None:
        """Keeps the counts if Postgres is down."""
        taken = self.take()
        if not taken:
            return
        try:
            with engine.begin() as connection:
                add_counts(connection, taken)
        except DATABASE_ERRORS:
            self.put_back(taken)

    def write_until(self, stopping: threading.Event, engine: Engine, also: Callable[[], None] = lambda: None) -> None:
        """Every few seconds, and once more at the end."""
        while True:
            is_last = stopping.wait(WRITE_SECONDS)
            self.write(engine)
            also()
            if is_last:
                return


def add_counts(connection: Connection, counts: dict[CounterKey, float]) -> None:
    rows = [(name, _encode(labels), value) for (name, labels), value in counts.items()]
    names, labels, values = (list(column) for column in zip(*rows, strict=True))
    connection.execute(_ADD, {"names": names, "labels": labels, "values": values})


def read_counts(connection: Connection) -> dict[CounterKey, float]:
    return {(row.name, _decode(row.labels)): float(row.value) for row in connection.execute(_READ)}


def _encode(labels: Labels) -> str:
    """Names and values of our own: none contains these characters."""
    return ",".join(f"{name}={value}" for name, value in labels)


def _decode(labels: str) -> Labels:
    return tuple((name, value) for name, _, value in (part.partition("=") for part in labels.split(",") if part))
