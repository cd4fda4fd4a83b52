"""Pages of files as pictures, for people who look: one at a time for each of them, and the same page once for all."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from archiver.extract import Extractor, Picture
from archiver.services.turns import Turns

_DRAWING_SECONDS = 20.0
_WAIT_SECONDS = 10.0
_KEPT_BYTES = 64 << 20
_ENTRY_BYTES = 500
"""What an entry without a picture takes, about."""


class Page(NamedTuple):
    """Of an attachment of a message: whose bytes never change, so what was drawn stays true."""

    sha256: bytes
    attachment: int
    page: int


class Drawings:
    """What can't be drawn is remembered, too: nobody waits for the same hostile file twice."""

    def __init__(self, processes: int = 1, seconds: float = _DRAWING_SECONDS, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._extractor = Extractor(processes, seconds=seconds)
        self._turns = Turns(1, wait_seconds)
        self._wait_seconds = wait_seconds
        self._kept: OrderedDict[Page, Picture] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def draw(self, who: Hashable, page: Page, data: Callable[[], bytes]) -> Picture:
        """`data` is asked for only if the page is not at hand. TooMany or NotReady: later."""
        if (known := self.known(page)) is not None:
            return known
        with self._turns.of(who):
            if (known := self.known(page)) is not None:  # by another request of theirs
                return known
            picture = self._extractor.draw(data(), page.page, self._wait_seconds)
        self._keep(page, picture)
        return picture

    def known(self, page: Page) -> Picture | None:
        with self._lock:
            found = self._kept.get(page)
            if found is not None:
                self._kept.move_to_end(page)
            return found

    def close(self) -> None:
        self._extractor.close()

    def _keep(self, page: Page, picture: Picture) -> None:
        with self._lock:
            self._kept_bytes += _size(picture) - _size(self._kept.pop(page, None))
            self._kept[page] = picture
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= _size(self._kept.popitem(last=False)[1])


def _size(picture: Picture | None) -> int:
    return 0 if picture is None else len(picture.png) + _ENTRY_BYTES
