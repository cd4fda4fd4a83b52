"""A file while it is read: its bytes at any position, and whether another process changes it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

PIECE_BYTES = 1 << 20


class Changed(Exception):
    """The file has changed since it was opened."""


class OpenFile:
    """Only regular files: reading a pipe or a device could block forever."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._stat = os.fstat(self._descriptor)
        if not stat.S_ISREG(self._stat.st_mode):
            os.close(self._descriptor)
            raise OSError(0, "not a regular file")
        self.size = self._stat.st_size
        self.fingerprint = fingerprint(self._stat)

    def read(self, start: int, end: int) -> bytes:
        """Up to `end`, or the end of the file as it was when it was opened."""
        end = min(end, self.size)
        pieces = []
        while start < end:
            piece = os.pread(self._descriptor, min(end - start, 8 << 20), start)
            if not piece:
                raise Changed("it became shorter while it was read")
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        end = self.size if end is None else min(end, self.size)
        for at in range(start, end, PIECE_BYTES):
            yield self.read(at, min(at + PIECE_BYTES, end))

    @property
    def descriptor(self) -> int:
        """For a process that inherits it."""
        return self._descriptor

    def check(self) -> None:
        """Raises Changed if the file has changed."""
        if fingerprint(os.fstat(self._descriptor)) != self.fingerprint:
            raise Changed("it was changed while it was read")

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def fingerprint(found: os.stat_result) -> str:
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
