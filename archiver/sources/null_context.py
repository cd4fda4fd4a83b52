"""The context of a connector outside a job, for example while it is only checked."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from archiver.outlook import reader
from connectors.outlook import OutlookFile

_SECONDS = 30.0
_PAUSE_SECONDS = 5.0


class QuietContext:
    """Limits nothing, saves nothing, reports nothing (implements connectors.base.Context)."""

    connections = 1
    least_free_bytes = 1 << 30

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        """Addresses of listed mailboxes that are not archived, with the reason."""

    def wait_for_turn(self, cost: float = 1.0, quotas: Sequence[Any] = (), limit: int = 1) -> int:
        return limit

    def back_off(self, quota: Any, seconds: float | None = None) -> float:
        return seconds or _PAUSE_SECONDS

    def save_credentials(self, credentials: Mapping[str, Any]) -> None: ...

    def leave_out(self, address: str, reason: str) -> None:
        self.left_out[address] = reason

    def progress(self, seen: int = 0, total: int | None = None) -> None: ...

    def scratch_path(self) -> Path:
        return Path(tempfile.gettempdir()) / "archiver-scratch"

    def open_outlook(self, descriptor: int, kind: str, *, recover: bool) -> OutlookFile:
        return reader.open_outlook(descriptor, kind, recover=recover)

    def should_stop(self) -> bool:
        return False

    def seconds_left(self) -> float:
        return _SECONDS
