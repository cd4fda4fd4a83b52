"""Nobody holds more than a few of what all share: whoever has their share waits for their own work to end, for a while."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from archiver.errors import TooMany

_AGAIN_SECONDS = 5


class Turns:
    """For threads."""

    def __init__(self, most: int, wait_seconds: float) -> None:
        self._most, self._wait_seconds = most, wait_seconds
        self._taken: Counter[Hashable] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def of(self, who: Hashable) -> Iterator[None]:
        """TooMany, when what they have asked for before takes too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._taken[who] < self._most, self._wait_seconds):
                raise TooMany("what you asked for before is still being worked on", _AGAIN_SECONDS)
            self._taken[who] += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken -= Counter([who])  # drops those who have nothing
                self._changed.notify_all()
