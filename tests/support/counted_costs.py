"""Counts what a piece of work costs in units that do not depend on the speed of the machine."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
import requests
from sqlalchemy import Engine, text

from archiver.store.files import OsFiles

_OWN_CODE = str(Path(__file__).parents[2] / "archiver")
_WAL_BYTES = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
"""Rows, index entries and their size, in one number."""


class CountingFiles(OsFiles):
    """The real file system, which counts how often it has to make something durable."""

    def __init__(self) -> None:
        self.fsyncs = 0

    def fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        super().fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        self.fsyncs += 1
        super().fsync_folder(folder)


class CostCounter:
    def __init__(self, engine: Engine, files: CountingFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine, self._files = engine, files
        self._counts: Counter[str] = Counter()
        _watch_calls(psycopg.Cursor, "execute", monkeypatch, self._count_statement)
        _watch_calls(requests.Session, "send", monkeypatch, self._count_request)

    def _count_statement(self, *_: Any) -> None:
        self._counts["sql_statements"] += 1

    def _count_request(self, request: requests.PreparedRequest, *_: Any) -> None:
        """Requests that wait for a result are left out: their number depends on the speed of the machine."""
        if request.method != "GET":
            self._counts["search_requests"] += 1

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """What the block costs. Our own functions are counted in this thread and in those that start meanwhile."""
        wal_bytes, fsyncs, costs = self._wal_bytes(), self._files.fsyncs, Counter[str]()
        self._counts.clear()
        with _profiled(costs):
            yield costs
        costs.update(self._counts)
        costs["fsyncs"] = self._files.fsyncs - fsyncs
        costs["wal_bytes"] = self._wal_bytes() - wal_bytes

    def _wal_bytes(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(text(_WAL_BYTES)).scalar_one())


def _watch_calls(owner: type, name: str, monkeypatch: pytest.MonkeyPatch, count: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        count(*given)
        return original(self, *given, **more)

    monkeypatch.setattr(owner, name, watched)


@contextmanager
def _profiled(costs: Counter[str]) -> Iterator[None]:
    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OWN_CODE):
            costs["python_calls"] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
