"""Bytes that may be too large to hold: in memory, or in a file that is read piece by piece."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

PIECE_BYTES = 1 << 20


class Raw(Protocol):
    """Random access to the bytes of one message."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes: ...


class FrameContent(Protocol):
    """What a frame will hold. `pieces` may be called again, and gives the same bytes."""

    @property
    def size(self) -> int: ...

    def pieces(self) -> Iterator[bytes]: ...


class MemoryContent(NamedTuple):
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int, end: int) -> bytes:
        return self.data if start == 0 and end >= len(self.data) else self.data[start:end]

    def pieces(self) -> Iterator[bytes]:
        yield self.data


class Spooled:
    """A file on disk that does not change while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int, end: int) -> bytes:
        data = os.pread(self._descriptor, end - start, start)
        while len(data) < min(end, self.size) - start:
            more = os.pread(self._descriptor, end - start - len(data), start + len(data))
            if not more:
                raise OSError(f"{self.path} became shorter while it was read")
            data += more
        return data

    def pieces(self) -> Iterator[bytes]:
        yield from pieces(self, 0, self.size)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in the packs, read again at each access; `read` is meant for its beginning."""

    open: Callable[[], Iterator[bytes]]
    size: int
    parts: tuple[bytes, ...] = ()

    def read(self, start: int, end: int) -> bytes:
        found = bytearray()
        for piece in self.open():
            found += piece
            if len(found) >= end:
                break
        return bytes(found[start:end])

    def pieces(self) -> Iterator[bytes]:
        return self.open()


def pieces(raw: Raw, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, PIECE_BYTES):
        yield raw.read(at, min(end, at + PIECE_BYTES))


def sha256_of(content: FrameContent) -> bytes:
    digest = hashlib.sha256()
    for piece in content.pieces():
        digest.update(piece)
    return digest.digest()


def as_bytes(content: FrameContent) -> bytes:
    return content.data if isinstance(content, MemoryContent) else b"".join(content.pieces())
