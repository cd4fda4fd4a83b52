"""Messages that are too large for memory, as files."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from connectors.errors import Unavailable


class Spool:
    """A temporary folder that is made when it is needed. The one who takes a batch removes its files; `close` the rest."""

    def __init__(self, progress: Callable[[], None]) -> None:
        self._progress = progress
        self._folder: Path | None = None
        self._numbers = count()
        self._lock = threading.Lock()

    def take(self, pieces: Iterator[bytes]) -> Path:
        try:
            with self._lock:
                if self._folder is None:
                    self._folder = Path(tempfile.mkdtemp(prefix="archiver-imap-"))
                path = self._folder / f"{next(self._numbers)}.eml"
            file = path.open("wb")
        except OSError as error:
            raise _full(error) from error
        with file:
            for piece in pieces:
                try:
                    file.write(piece)
                except OSError as error:
                    raise _full(error) from error
                self._progress()
        return path

    def close(self) -> None:
        with self._lock:
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)


def _full(error: OSError) -> Unavailable:
    return Unavailable(f"a large message can't be spooled: {error.strerror}")
