"""Caches counts that take long in a large archive, for a time that depends on how long they took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

_TIMES_AS_LONG = 20
_MAX_KEYS = 1_000


class Remembered(Generic[V]):
    """Caches a value 20 times as long as it took to compute, so that counting takes at most a twentieth of the time.

    In a small archive, values are practically current; where counting takes a minute, they are up to 20 minutes old. While one
    thread computes a new value, others get the previous one; if there is none, they wait. Thread-safe.
    """

    def __init__(self, at_least: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`at_least`: the minimum time that a value is cached, in seconds."""
        self._at_least = at_least
        self._clock = clock
        self._lock = threading.Lock()
        self._made: dict[Hashable, tuple[float, V]] = {}
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self._lock:
            if len(self._making) > _MAX_KEYS:
                self._made.clear()
                self._making.clear()
            making = self._making.setdefault(key, threading.Lock())
            known = self._made.get(key)
        if known is not None and (self._clock() < known[0] or not making.acquire(blocking=False)):
            return known[1]
        if known is None:
            making.acquire()
        try:
            return self._make(key, make)
        finally:
            making.release()

    def _make(self, key: Hashable, make: Callable[[], V]) -> V:
        started = self._clock()
        known = self._made.get(key)
        if known is not None and started < known[0]:  # computed by the thread that this one waited for
            return known[1]
        value = make()
        ended = self._clock()
        if value is not None:  # None is not cached
            self._made[key] = ended + max(self._at_least, _TIMES_AS_LONG * (ended - started)), value
        return value
