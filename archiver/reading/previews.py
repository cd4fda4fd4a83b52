"""Renders pages of files as pictures: one at a time per reader, and each page only once for all readers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from archiver.extract import Picture
from archiver.extract.extractor import Extractor
from archiver.extract.limits import PICTURE_WIDTH
from archiver.reading.user_slots import Turns

_DRAWING_SECONDS = 20.0
_WAIT_SECONDS = 10.0
_KEPT_BYTES = 64 << 20
_ENTRY_BYTES = 500
"""Approximate size of a cache entry without a picture."""


class PreviewPage(NamedTuple):
    """A page of an attachment. The bytes of a message never change, so a rendered page stays valid."""

    sha256: bytes
    attachment: int
    page: int
    width: int = PICTURE_WIDTH


class Drawings:
    """Also caches failures, so that no reader waits for the same hostile file twice."""

    def __init__(self, processes: int = 1, seconds: float = _DRAWING_SECONDS, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._extractor = Extractor(processes, seconds=seconds)
        self._turns = Turns(1, wait_seconds)
        self._wait_seconds = wait_seconds
        self._kept: OrderedDict[PreviewPage, Picture] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def draw(self, reader: Hashable, page: PreviewPage, data: Callable[[], bytes]) -> Picture:
        """Calls `data` only if the page is not cached. Raises TooMany or NotReady if the caller should retry later."""
        if (known := self.known(page)) is not None:
            return known
        with self._turns.of(reader):
            if (known := self.known(page)) is not None:  # rendered by another request of this reader
                return known
            picture = self._extractor.draw(data(), page.page, self._wait_seconds, width=page.width)
        self._cache(page, picture)
        return picture

    def known(self, page: PreviewPage) -> Picture | None:
        with self._lock:
            found = self._kept.get(page)
            if found is not None:
                self._kept.move_to_end(page)
            return found

    def close(self) -> None:
        self._extractor.close()

    def _cache(self, page: PreviewPage, picture: Picture) -> None:
        with self._lock:
            self._kept_bytes += _size(picture) - _size(self._kept.pop(page, None))
            self._kept[page] = picture
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= _size(self._kept.popitem(last=False)[1])


def _size(picture: Picture | None) -> int:
    return 0 if picture is None else len(picture.png) + _ENTRY_BYTES
