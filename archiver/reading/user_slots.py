"""Limits how many shared slots one user holds: a user at the limit waits, for a while, for their own requests to end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from archiver.errors import TooMany

_RETRY_SECONDS = 5


class Turns:
    """Thread-safe."""

    def __init__(self, limit: int, wait_seconds: float) -> None:
        self._limit, self._wait_seconds = limit, wait_seconds
        self._taken: Counter[Hashable] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def of(self, reader: Hashable) -> Iterator[None]:
        """Raises TooMany if the user's earlier requests take too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._taken[reader] < self._limit, self._wait_seconds):
                raise TooMany("your earlier requests are still being processed", _RETRY_SECONDS)
            self._taken[reader] += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken -= Counter([reader])  # also drops users who hold no slot
                self._changed.notify_all()
