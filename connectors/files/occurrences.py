"""Counts how often the same bytes occurred before in a file: a message that is stored twice in an mbox is two copies.

Stored in SQLite, because an mbox may hold millions of messages: in memory for small files, on disk for large ones. What is
lost is found out again from the file.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_IN_MEMORY_BYTES = 64 << 20
_CACHE_KIB = 16 << 10


class KeyOccurrences:
    def __init__(self, folder: Path, fingerprint: str, size: int) -> None:
        self._path = None
        if size > _IN_MEMORY_BYTES:
            self._path = folder / f"seen-{hashlib.sha256(fingerprint.encode()).hexdigest()[:24]}.sqlite"
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return _prepare(self._path)
        except sqlite3.DatabaseError:  # incomplete after a power failure
            assert self._path is not None
            self._path.unlink(missing_ok=True)
            return _prepare(self._path)

    @property
    def covered(self) -> int:
        """All messages that begin before this position are known."""
        return int(self._database.execute("SELECT at FROM covered").fetchone()[0])

    def cover(self, at: int) -> None:
        self._database.execute("UPDATE covered SET at = max(at, ?)", (at,))
        self._database.commit()

    def number(self, sha256: bytes, at: int) -> int:
        """How many messages before it have these bytes. Safe to repeat."""
        print_ = int.from_bytes(sha256[:8], "big", signed=True)
        before = self._database.execute("SELECT count(*) FROM seen WHERE print = ? AND at < ?", (print_, at)).fetchone()[0]
        self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (print_, at))
        return int(before)

    def remove(self) -> None:
        """Call when the file was read to its end."""
        self._database.close()
        if self._path:
            for path in _files(self._path):
                path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(sqlite3.Error):
            self._database.close()


def _prepare(path: Path | None) -> sqlite3.Connection:
    database = sqlite3.connect(path or ":memory:", check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # a process may die at any time; after a power cut it is created again
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute("CREATE TABLE IF NOT EXISTS seen (print INTEGER, at INTEGER, PRIMARY KEY (print, at)) WITHOUT ROWID")
        database.execute("CREATE TABLE IF NOT EXISTS covered (at INTEGER)")
        database.execute("INSERT INTO covered SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM covered)")
        database.commit()
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _files(path: Path) -> Iterator[Path]:
    for suffix in ("", "-wal", "-shm"):
        yield path.with_name(path.name + suffix)
