"""A pause of all workers, for migrations that must not run beside them.

The migration writes a row that expires unless it is renewed, and waits until every worker has paused or is gone. A worker that
sees the row finishes its jobs as for a stop, and works again once the row is gone. A worker writes its own row before it looks
for a pause, and a pause is written before the migration looks for workers, so neither can miss the other.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from os import getpid
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from archiver.db.engine import autocommit
from archiver.db.ids import uuid7
from archiver.errors import NotReady

_WAIT_SECONDS = 300.0
_RENEW_SECONDS = 10.0
_LOOK_SECONDS = 0.2

_REQUEST = text("""
    INSERT INTO worker_pause (id, reason, expires_at) VALUES (1, :reason, now() + interval '60 seconds')
    ON CONFLICT (id) DO UPDATE SET reason = EXCLUDED.reason, started_at = now(), expires_at = EXCLUDED.expires_at""")
_RENEW = text("UPDATE worker_pause SET expires_at = now() + interval '60 seconds'")
_END = text("DELETE FROM worker_pause")
_FIND = text("SELECT reason, started_at FROM worker_pause WHERE expires_at > now()")
_WORKING = text("""
    SELECT queue, host, pid FROM worker_processes WHERE seen_at > now() - interval '60 seconds' AND NOT is_paused
    ORDER BY queue, host, pid""")
_JOIN = text("INSERT INTO worker_processes (id, queue, host, pid) VALUES (:id, :queue, :host, :pid)")
_FORGET_OLD = text("DELETE FROM worker_processes WHERE seen_at < now() - interval '1 day'")
_BEAT = text("UPDATE worker_processes SET seen_at = now(), is_paused = :is_paused WHERE id = :id")
_LEAVE = text("DELETE FROM worker_processes WHERE id = :id")


@dataclass(frozen=True, slots=True)
class Pause:
    reason: str
    started_at: datetime
    working: tuple[str, ...] = ()
    """The workers that have not paused yet."""


def find_pause(connection: Connection) -> Pause | None:
    row = connection.execute(_FIND).one_or_none()
    return Pause(row.reason, row.started_at, _working(connection)) if row is not None else None


@contextmanager
def paused_workers(
    engine: Engine, reason: str, report: Callable[[str], None] = lambda _: None, *, wait_seconds: float = _WAIT_SECONDS
) -> Iterator[None]:
    """No worker works during the block. Raises NotReady, and ends the pause, if one does not pause in time."""
    with engine.begin() as connection:
        connection.execute(_REQUEST, {"reason": reason})
    over = threading.Event()
    renewal = threading.Thread(target=_renew, args=(engine, over), daemon=True, name="pause")
    renewal.start()
    try:
        _wait_until_paused(engine, report, wait_seconds)
        yield
    finally:
        over.set()
        renewal.join()
        with engine.begin() as connection:
            connection.execute(_END)


def _wait_until_paused(engine: Engine, report: Callable[[str], None], wait_seconds: float) -> None:
    deadline, reported = time.monotonic() + wait_seconds, False
    while working := _still_working(engine):
        if time.monotonic() > deadline:
            raise NotReady(
                f"after {wait_seconds:.0f} s, these workers have not paused: {', '.join(working)}; stop them, and try again"
            )
        if not reported:
            report(f"waiting until these workers have finished their batches: {', '.join(working)}")
            reported = True
        time.sleep(_LOOK_SECONDS)


def _renew(engine: Engine, over: threading.Event) -> None:
    while not over.wait(_RENEW_SECONDS):
        try:
            with engine.begin() as connection:
                connection.execute(_RENEW)
        except DBAPIError:  # the migration itself reports a server that is gone
            continue


def _still_working(engine: Engine) -> tuple[str, ...]:
    with engine.connect() as connection:
        return _working(connection)


def _working(connection: Connection) -> tuple[str, ...]:
    return tuple(f"{row.queue} on {row.host} (pid {row.pid})" for row in connection.execute(_WORKING))


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """The row of one worker process."""

    engine: Engine
    id: UUID

    @classmethod
    def join(cls, engine: Engine, queue: str) -> WorkerPresence:
        process_id = uuid7()
        values = {"id": process_id, "queue": queue, "host": socket.gethostname(), "pid": getpid()}
        with engine.begin() as connection:
            connection.execute(_FORGET_OLD)
            connection.execute(_JOIN, values)
        return cls(engine, process_id)

    def beat(self, *, is_paused: bool = False) -> Pause | None:
        """Shows that this process is alive, and returns the pause that it has to make. The first is committed before the
        second is read."""
        with autocommit(self.engine) as connection:
            connection.execute(_BEAT, {"id": self.id, "is_paused": is_paused})
            return find_pause(connection)

    def leave(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(_LEAVE, {"id": self.id})
