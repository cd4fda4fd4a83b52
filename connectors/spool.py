"""Messages that are too large for memory, as temporary files."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from connectors.base import SPOOL_BYTES
from connectors.errors import Unavailable


class Spool:
    """A temporary folder, created on first use. The engine removes the files of each batch it stores; `close` removes the rest.

    Thread-safe. `progress` is called after each chunk that is written.
    """

    def __init__(self, kind: str, progress: Callable[[], None] = lambda: None) -> None:
        self._prefix, self._progress = f"archiver-{kind}-", progress
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._closed = False
        self._numbers = count()

    def open(self) -> BinaryIO:
        with disk_errors(), self._lock:
            if self._closed:
                raise Unavailable("the connection was closed")
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix=self._prefix))
            return (self._folder / f"{next(self._numbers)}.eml").open("xb")

    def write(self, chunks: Iterable[bytes]) -> Path:
        """An error in `chunks` itself is raised as it is, and leaves no file behind."""
        file = self.open()
        try:
            with file:
                for chunk in chunks:
                    with disk_errors():
                        file.write(chunk)
                    self._progress()
                with disk_errors():
                    file.flush()
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
        return Path(file.name)

    def receive(self, chunks: Iterator[bytes]) -> bytes | Path:
        """In memory up to SPOOL_BYTES, in a file beyond that."""
        parts: list[bytes] = []
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > SPOOL_BYTES:
                return self.write(chain(_drain(parts), chunks))
        return b"".join(parts)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            folder = self._folder
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Errors of the local disk must not look like errors of the connection."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"a large message can't be spooled: {error.strerror}") from error


def _drain(parts: list[bytes]) -> Iterator[bytes]:
    """Frees each part once it is written."""
    while parts:
        yield parts.pop(0)
