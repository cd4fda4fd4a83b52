"""What the engine provides to a connector: rate limits shared by all workers, scratch space, progress, and when to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from connectors.outlook import OutlookFile


@dataclass(frozen=True, slots=True)
class Quota:
    """A provider's rate limit for one user or one project. All workers share it."""

    name: str
    """Identifies the quota for all workers: `google:PROJECT:alice@example.org`."""
    units_per_minute: float


class Context(Protocol):
    """What the engine provides to a connector during a job."""

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Quota] = (), limit: int = 1) -> int:
        """The rate limiter: how many requests of this cost may be sent now, from 1 to `limit`.

        Raises Throttled when a quota is exhausted, so that the job frees its slot instead of sleeping in it, and Unavailable
        when the job has to stop.
        """

    def back_off(self, quota: Quota, seconds: float | None = None) -> float:
        """Reports that the server throttles: all workers pause for this time (or a growing one if None), and the quota counts
        as smaller than configured. Returns the pause, for the Throttled to raise."""

    def save_credentials(self, credentials: Mapping[str, Any]) -> None:
        """Stores refreshed credentials for later jobs."""

    def leave_out(self, address: str, reason: str) -> None:
        """Reports, during a listing, a mailbox that exists but will not be archived, and why."""

    def scratch_path(self) -> Path:
        """A folder with space for what is expensive to recompute. It survives the job, and may be emptied after it."""

    def open_outlook(self, descriptor: int, kind: str, *, recover: bool) -> OutlookFile:
        """Reads a PST, OST, MSG or OLM that is open under this descriptor; with `recover`, deleted items too. Raises
        OutlookUnreadable."""

    def should_stop(self) -> bool: ...

    def seconds_left(self) -> float: ...

    def progress(self, seen: int = 0, total: int | None = None) -> None:
        """Reports that work continues. A connector that reports nothing for long is considered hung."""

    @property
    def least_free_bytes(self) -> int:
        """How much must stay free on the disk of `scratch_path`."""

    @property
    def connections(self) -> int:
        """How many connections one mailbox may use at the same time."""
