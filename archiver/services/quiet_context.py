"""What a connector is lent where no job runs: while it is only checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SECONDS = 30.0


class QuietContext:
    """Limits nothing, keeps nothing, tells nobody (connectors.base.Context)."""

    def wait_for_turn(self, cost: float = 1.0) -> None: ...

    def save_credentials(self, credentials: Mapping[str, Any]) -> None: ...

    def progress(self, seen: int = 0, total: int | None = None) -> None: ...

    def should_stop(self) -> bool:
        return False

    def seconds_left(self) -> float:
        return _SECONDS
