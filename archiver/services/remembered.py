"""Figures that take long to count in a large archive, and that nobody needs anew each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")

_TIMES_AS_LONG = 20
_MOST = 1_000


class Remembered(Generic[V]):
    """Holds a value 20 times as long as it took to make: counting never takes more than a twentieth of the time.

    In a small archive everything is as good as new; where counting takes a minute, the figures are up to 20 minutes old. Those
    who ask for the same thing at once get the last value while one of them makes the next; for the first one they wait. Safe to
    use from several threads.
    """

    def __init__(self, at_least: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`at_least`: seconds that a value is held in any case."""
        self._at_least = at_least
        self._clock = clock
        self._lock = threading.Lock()
        self._made: dict[Hashable, tuple[float, V]] = {}
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self._lock:
            if len(self._making) > _MOST:
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
        if known is not None and started < known[0]:  # by the one that we waited for
            return known[1]
        value = make()
        ended = self._clock()
        if value is not None:  # nothing is worth no holding
            self._made[key] = ended + max(self._at_least, _TIMES_AS_LONG * (ended - started)), value
        return value
