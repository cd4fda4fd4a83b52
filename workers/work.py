"""What the processors of one process share: connections, the archive, the stop flag, and a watch over what may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from archiver.config import Settings
from archiver.logs import get_logger
from archiver.secrets import Keyring
from archiver.services.ingest import Ingest
from archiver.services.sources import Source, save_credentials
from connectors.base import BATCH_BYTES, Connector
from connectors.errors import Unavailable

_BUDGET_BYTES = 96 << 20
_LOOK_SECONDS = 1.0
_OUTAGE_STATES = ("08", "57P")
"""SQLSTATE classes of a server that is leaving, gone, or not there yet."""

log = get_logger("workers")


@dataclass(frozen=True, slots=True)
class Work:
    settings: Settings
    engine: Engine
    ingest: Ingest
    keyring: Keyring
    stopping: threading.Event = field(default_factory=threading.Event)
    in_flight: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_BUDGET_BYTES // BATCH_BYTES)
    )
    """One permit for each batch in memory: all mail in flight fits into one budget."""

    def wait_for_database(self) -> None:
        """Returns when Postgres answers, or when the process has to stop."""
        while not self.stopping.wait(_LOOK_SECONDS):
            try:
                with self.engine.connect() as connection:
                    connection.execute(text("SELECT 1"))
                return
            except DBAPIError:
                continue
        time.sleep(_LOOK_SECONDS)  # the process ends soon; until then its jobs must not spin


def is_outage(error: BaseException) -> bool:
    """The database is away. No job is to blame, and none loses an attempt."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, psycopg.Error):
        return False
    if cause.sqlstate is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    return cause.sqlstate.startswith(_OUTAGE_STATES)


class ConnectorContext:
    """What a connector is lent for one job (connectors.base.Context)."""

    def __init__(self, work: Work, source: Source, seconds: float, on_progress: Callable[[int | None], None]) -> None:
        self._work, self._source = work, source
        self._deadline = time.monotonic() + seconds
        self._on_progress = on_progress
        self.last_progress = time.monotonic()

    def wait_for_turn(self, cost: float = 1.0) -> None:
        if self._work.stopping.is_set():
            raise Unavailable("the worker is stopping")
        self.last_progress = time.monotonic()

    def save_credentials(self, credentials: Mapping[str, Any]) -> None:
        save_credentials(self._work.engine, self._work.keyring, self._source, credentials)

    def should_stop(self) -> bool:
        return self._work.stopping.is_set()

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        self.last_progress = time.monotonic()
        self._on_progress(total)


class Watch:
    """Closes a connector from outside when it has made no progress for too long. One thread for each that is open."""

    def __init__(self, connector: Connector, context: ConnectorContext, idle_seconds: float) -> None:
        self._connector, self._context, self._idle_seconds = connector, context, idle_seconds
        self._over = threading.Event()
        self.timed_out = False

    def __enter__(self) -> Watch:
        threading.Thread(target=self._look, daemon=True, name="connector-watch").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._connector.close()

    def _look(self) -> None:
        while not self._over.wait(min(_LOOK_SECONDS, self._idle_seconds / 4)):
            idle = time.monotonic() - self._context.last_progress
            if idle > self._idle_seconds:
                self.timed_out = True
                log.warning("connector_closed", idle_seconds=round(idle))
                self._connector.close()
                return
