"""The persistent state besides documents: tasks, indexes and keys, in one SQLite file.

A task is accepted by one transaction and finished by another, which also carries what it did to the list of indexes. The
writes are synchronous: what was answered with 202 or reported as succeeded is on disk.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    uid INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_uid INTEGER,
    index_uid TEXT,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    request BLOB NOT NULL,
    details BLOB,
    error BLOB,
    canceled_by INTEGER,
    enqueued_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    payload BLOB,
    payload_bytes INTEGER NOT NULL DEFAULT 0,
    custom_metadata TEXT
);
CREATE INDEX IF NOT EXISTS tasks_waiting ON tasks (uid) WHERE status IN ('enqueued', 'processing');
CREATE INDEX IF NOT EXISTS tasks_by_batch ON tasks (batch_uid);
CREATE TABLE IF NOT EXISTS indexes (
    uid TEXT PRIMARY KEY,
    folder TEXT NOT NULL,
    primary_key TEXT,
    settings BLOB NOT NULL,
    attributes BLOB NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS keys (uid TEXT PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
Row = dict[str, Any]
_JSON_COLUMNS = ("request", "details", "error", "settings", "attributes", "content")


class ServerState:
    """One connection and one lock; statements are short, and only commits wait for the disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)
        if not self.one("SELECT 1 FROM sqlite_sequence WHERE name = 'tasks'"):
            self.run("INSERT INTO sqlite_sequence (name, seq) VALUES ('tasks', -1)")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def run(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Executes a statement and returns the number of changed rows."""
        with self._lock:
            return self._connection.execute(statement, parameters).rowcount

    def insert(self, table: str, values: Mapping[str, Any]) -> int:
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  (names are ours)
        with self._lock:
            return self._connection.execute(statement, [_pack(value) for value in values.values()]).lastrowid or 0

    def update(self, table: str, key: str, identity: Any, values: Mapping[str, Any]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE {table} SET {assignments} WHERE {key} = ?"  # noqa: S608  (names are ours)
        self.run(statement, [*map(_pack, values.values()), identity])

    def all(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        with self._lock:
            return [_unpack(row) for row in self._connection.execute(statement, parameters)]

    def one(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Row | None:
        with self._lock:
            row = self._connection.execute(statement, parameters).fetchone()
        return None if row is None else _unpack(row)

    def note(self, name: str) -> Any:
        row = self.one("SELECT value FROM notes WHERE name = ?", [name])
        return None if row is None else orjson.loads(row["value"])

    def set_note(self, name: str, value: Any) -> None:
        self.run("INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)", [name, orjson.dumps(value)])

    def vacuum(self) -> None:
        """Writes the file again, without the remains of payloads in free pages and in the log."""
        with self._lock:
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def marks(values: Iterable[Any]) -> str:
    """Placeholders for `IN (…)`."""
    return ", ".join("?" for _ in values)


def _pack(value: Any) -> Any:
    return orjson.dumps(value) if isinstance(value, (dict, list)) else value


def _unpack(row: sqlite3.Row) -> Row:
    return {
        name: orjson.loads(row[name]) if name in _JSON_COLUMNS and row[name] is not None else row[name]
        for name in row.keys()  # noqa: SIM118
    }
