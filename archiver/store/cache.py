"""A local copy of what was read from the bucket last, in blocks, within a limit. Packs never change, so it is never stale."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

BLOCK_BYTES = 1 << 20

Fetch = Callable[[int, int], bytes]
"""(offset, length) → the bytes there."""


class BlockCache:
    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total = 0
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(folder.glob("*.block"), key=lambda path: path.stat().st_mtime):
            self._note(path.name, path.stat().st_size)

    def read(self, pack: str, size: int, offset: int, length: int, fetch: Fetch) -> bytes:
        """Bytes of a pack of `size`; missing blocks are fetched with a single request."""
        end = min(size, offset + length)
        if end <= offset:
            return b""
        first, last = offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        blocks = [self._load(f"{pack}.{number}.block") for number in range(first, last + 1)]
        if any(block is None for block in blocks):
            start = first * BLOCK_BYTES
            data = fetch(start, min(size, (last + 1) * BLOCK_BYTES) - start)
            for number in range(first, last + 1):
                at = (number - first) * BLOCK_BYTES
                self._save(f"{pack}.{number}.block", data[at : at + BLOCK_BYTES])
        else:
            data = b"".join(block for block in blocks if block is not None)
        begin = offset - first * BLOCK_BYTES
        return data[begin : begin + end - offset]

    def forget(self, pack: str) -> None:
        with self._lock:
            for name in [name for name in self._sizes if name.startswith(f"{pack}.")]:
                self._drop(name)

    def _load(self, name: str) -> bytes | None:
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        with self._lock:
            if name in self._sizes:
                self._sizes.move_to_end(name)
        return data

    def _save(self, name: str, data: bytes) -> None:
        if self._limit < len(data):
            return
        temporary = self._folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        try:
            temporary.write_bytes(data)
            temporary.replace(self._folder / name)
        except OSError:  # a full disk makes reading slower, not impossible
            with suppress(OSError):
                temporary.unlink()
            return
        with self._lock:
            self._note(name, len(data))
            while self._total > self._limit:
                self._drop(next(iter(self._sizes)))

    def _note(self, name: str, size: int) -> None:
        self._total += size - self._sizes.pop(name, 0)
        self._sizes[name] = size

    def _drop(self, name: str) -> None:
        self._total -= self._sizes.pop(name)
        with suppress(OSError):
            (self._folder / name).unlink()
