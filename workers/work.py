"""What the processors of one process share: connections, the archive, the stop flag, and a watch over what may hang."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from archiver.config import Settings
from archiver.db import is_away
from archiver.errors import NotReady
from archiver.logs import get_logger
from archiver.queue.buckets import Buckets
from archiver.search.index import SearchUnavailable
from archiver.secrets import Keyring
from archiver.services.ingest import Ingest
from archiver.services.source_access import save_credentials
from archiver.services.source_rows import Source
from connectors.base import BATCH_BYTES, Connector, Quota
from connectors.errors import Throttled, Unavailable
from workers.indexing import IndexWork

_BUDGET_BYTES = 96 << 20
_LOOK_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0

log = get_logger("workers")


@dataclass(frozen=True, slots=True)
class Work:
    settings: Settings
    engine: Engine
    ingest: Ingest
    keyring: Keyring
    buckets: Buckets = field(default_factory=Buckets)
    watchman: Watchman = field(default_factory=lambda: Watchman())
    stopping: threading.Event = field(default_factory=threading.Event)
    in_flight: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_BUDGET_BYTES // BATCH_BYTES)
    )
    """One permit for each batch in memory: all mail in flight fits into one budget."""
    _index: IndexWork | None = None

    @property
    def index(self) -> IndexWork:
        """In an indexing process."""
        assert self._index is not None
        return self._index

    def let_go(self) -> None:
        """When the process has to stop: what may take long is ended."""
        if self._index is not None:
            self._index.stop()

    def wait_until_back(self) -> None:
        """Returns when the servers that this process needs answer, or when it has to stop."""
        while not self.stopping.wait(_LOOK_SECONDS):
            try:
                with self.engine.connect() as connection:
                    connection.execute(text("SELECT 1"))
                if self._index is not None:
                    self._index.answers()
                return
            except (DBAPIError, NotReady):
                continue
        time.sleep(_LOOK_SECONDS)  # the process ends soon; until then its jobs must not spin


def is_outage(error: BaseException) -> bool:
    """A server that all jobs need is away. No job is to blame, and none loses an attempt."""
    return isinstance(error, SearchUnavailable) or is_away(error)


class ConnectorContext:
    """What a connector is lent for one job (connectors.base.Context)."""

    def __init__(self, work: Work, source: Source, seconds: float, on_progress: Callable[[int | None], None]) -> None:
        self._work, self._source = work, source
        self._deadline = time.monotonic() + seconds
        self._on_progress = on_progress
        self.last_progress = time.monotonic()
        self.left_out: Counter[str] = Counter()
        """Mailboxes, by the reason."""
        self.connections = work.settings.imap_connections
        self.least_free_bytes = work.settings.disk_min_free_bytes

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), most: int = 1) -> int:
        if self._work.stopping.is_set():
            raise Unavailable("the worker is stopping")
        self.last_progress = time.monotonic()
        if not quotas:
            return most
        turns, wait_seconds = self._work.buckets.take([(quota.name, quota.units_per_minute) for quota in quotas], cost, most)
        if not turns:
            raise Throttled("what the provider allows is used up for the moment", wait_seconds)
        return turns

    def back_off(self, quota: Quota, seconds: float | None = None) -> float:
        pause = self._work.buckets.shut(quota.name, seconds)
        log.warning("provider_throttles", source=str(self._source.id), quota=quota.name, seconds=round(pause, 1))
        return pause

    def save_credentials(self, credentials: Mapping[str, Any]) -> None:
        save_credentials(self._work.engine, self._work.keyring, self._source, credentials)

    def leave_out(self, address: str, reason: str) -> None:
        self.left_out[reason] += 1

    def scratch_path(self) -> Path:
        return self._work.settings.archiver_data / "scratch"

    def should_stop(self) -> bool:
        return self._work.stopping.is_set()

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        self.last_progress = time.monotonic()
        self._on_progress(total)


@dataclass(slots=True, eq=False)
class Watch:
    """Over one connector, while it is open."""

    connector: Connector
    context: ConnectorContext
    idle_seconds: float
    timed_out: bool = False

    def look(self) -> None:
        idle = time.monotonic() - self.context.last_progress
        if idle > self.idle_seconds and not self.timed_out:
            self.timed_out = True
            log.warning("connector_closed", idle_seconds=round(idle))
            threading.Thread(target=self.connector.close, daemon=True, name="connector-close").start()


class Watchman:
    """Closes connectors from outside when they have made no progress for too long. One thread looks after all of a process."""

    def __init__(self) -> None:
        self._watched: set[Watch] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, connector: Connector, context: ConnectorContext, idle_seconds: float) -> Iterator[Watch]:
        """Closes the connector at the end, in any case."""
        watch = Watch(connector, context, idle_seconds)
        with self._changed:
            self._watched.add(watch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="connector-watch")
                self._thread.start()
            elif len(self._watched) == 1:
                self._changed.notify()
        try:
            yield watch
        finally:
            with self._changed:
                self._watched.discard(watch)
            connector.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched)
                watched = list(self._watched)
            for watch in watched:
                watch.look()
            time.sleep(min(_LOOK_SECONDS, *(watch.idle_seconds / 4 for watch in watched)))
