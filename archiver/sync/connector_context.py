"""The context that a connector works in while a job runs: quotas, credentials, stop flag, deadline, progress."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from archiver.logs import get_logger
from archiver.outlook import reader
from archiver.queue.job_report import report_progress
from connectors.base import Quota
from connectors.errors import Throttled, Unavailable
from connectors.outlook import OutlookFile

if TYPE_CHECKING:
    from archiver.sync.resources import SyncResources

log = get_logger("workers")


class ConnectorContext:
    """What the engine gives a connector for one job (implements connectors.base.Context)."""

    def __init__(
        self,
        resources: SyncResources,
        source_id: UUID,
        save_credentials: Callable[[Mapping[str, Any]], None],
        on_progress: Callable[[int | None], None],
        quotas: Sequence[Quota] = (),
    ) -> None:
        """`quotas`: limits of this installation, in messages, beside those of the provider."""
        self._resources, self._source_id = resources, source_id
        self._save_credentials = save_credentials
        self._deadline = time.monotonic() + resources.settings.slice_seconds
        self._on_progress = on_progress
        self._seen = 0
        self._total: int | None = None
        self._quotas = tuple(quotas)
        self.last_progress = time.monotonic()
        self.left_out: Counter[str] = Counter()
        """Number of mailboxes that are not archived, by reason."""
        self.connections = resources.settings.imap_connections
        self.least_free_bytes = resources.settings.disk_min_free_bytes

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), limit: int = 1) -> int:
        if self._resources.stopping.is_set():
            raise Unavailable("the worker is stopping")
        self.last_progress = time.monotonic()
        wanted = quotas or self._quotas
        if not wanted:
            return limit
        named = [(quota.name, quota.units_per_minute) for quota in wanted]
        turns, wait_seconds = self._resources.buckets.take(named, cost, limit)
        if not turns:
            whose = "the provider's" if quotas else "this installation's"
            raise Throttled(f"{whose} quota is exhausted", wait_seconds)
        return turns

    def back_off(self, quota: Quota, seconds: float | None = None) -> float:
        pause = self._resources.buckets.back_off(quota.name, seconds)
        log.warning("provider_throttles", source=str(self._source_id), quota=quota.name, seconds=round(pause, 1))
        return pause

    def save_credentials(self, credentials: Mapping[str, Any]) -> None:
        self._save_credentials(credentials)

    def leave_out(self, address: str, reason: str) -> None:
        self.left_out[reason] += 1

    def scratch_path(self) -> Path:
        return self._resources.settings.archiver_data / "scratch"

    def open_outlook(self, descriptor: int, kind: str, *, recover: bool) -> OutlookFile:
        return reader.open_outlook(descriptor, kind, recover=recover, tick=self.progress)

    def should_stop(self) -> bool:
        return self._resources.stopping.is_set()

    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        self.last_progress = time.monotonic()
        self._seen, self._total = self._seen + seen, self._total if total is None else total
        report_progress(self._seen, self._total)
        self._on_progress(total)
