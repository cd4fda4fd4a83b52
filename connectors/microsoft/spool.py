"""The bytes of a message as they come in: in memory while they are few, then in a file."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from connectors.base import SPOOL_BYTES
from connectors.errors import Unavailable

LARGEST_BYTES = 2 << 30


class TooLarge(Exception):
    """No message is that long."""


class Spool:
    """A temporary folder that is made when it is needed. The one who takes a batch removes its files; `close` the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._closed = False
        self._numbers = count()
        self.received = 0
        """Bytes, by all downloads together: whoever watches sees that something moves."""

    def take(self, chunks: Iterator[bytes]) -> bytes | Path:
        parts: list[bytes] = []
        size = 0
        for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            self.received += len(chunk)
            if size > SPOOL_BYTES:
                return self._spooled(parts, size, chunks)
        return b"".join(parts)

    def _spooled(self, parts: list[bytes], size: int, rest: Iterator[bytes]) -> Path:
        with _disk():
            path = self._new_path()
            file = path.open("wb")
        try:
            with file:
                with _disk():
                    file.writelines(parts)
                parts.clear()
                for chunk in rest:
                    size += len(chunk)
                    if size > LARGEST_BYTES:
                        raise TooLarge
                    self.received += len(chunk)
                    with _disk():
                        file.write(chunk)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def close(self) -> None:
        with self._lock:
            self._closed = True
            folder = self._folder
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def _new_path(self) -> Path:
        with self._lock:
            if self._closed:
                raise Unavailable("the connection was closed")
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="archiver-microsoft-"))
            return self._folder / f"{next(self._numbers)}.eml"


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """What the disk says is not what the connection says."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"a large message can't be spooled: {error.strerror}") from error
