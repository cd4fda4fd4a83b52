"""Closes a connector that hangs from another thread, so that its slice ends with `Unavailable`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from archiver.logs import get_logger
from archiver.sync.connector_context import ConnectorContext
from connectors.base import Connector

_CHECK_SECONDS = 1.0

log = get_logger("workers")


@dataclass(slots=True, eq=False)
class GuardedConnector:
    """An open connector under observation."""

    connector: Connector
    context: ConnectorContext
    idle_seconds: float
    timed_out: bool = False

    def close_if_idle(self) -> None:
        idle = time.monotonic() - self.context.last_progress
        if idle > self.idle_seconds and not self.timed_out:
            self.timed_out = True
            log.warning("connector_closed", idle_seconds=round(idle))
            threading.Thread(target=self.connector.close, daemon=True, name="connector-close").start()


class IdleGuard:
    """Closes connectors that have made no progress for too long. One thread serves the whole process."""

    def __init__(self) -> None:
        self._guarded: set[GuardedConnector] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def guard(self, connector: Connector, context: ConnectorContext, idle_seconds: float) -> Iterator[GuardedConnector]:
        """Guards the connector during the block, and closes it at the end in any case."""
        guarded = GuardedConnector(connector, context, idle_seconds)
        with self._changed:
            self._guarded.add(guarded)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="connector-idle-guard")
                self._thread.start()
            elif len(self._guarded) == 1:
                self._changed.notify()
        try:
            yield guarded
        finally:
            with self._changed:
                self._guarded.discard(guarded)
            connector.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._guarded)
                guarded = list(self._guarded)
            for connector in guarded:
                connector.close_if_idle()
            time.sleep(min(_CHECK_SECONDS, *(connector.idle_seconds / 4 for connector in guarded)))
