"""Interprets Google's error responses. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.http import http_date, retry_after

_RATE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded", "RATE_LIMIT_EXCEEDED")
_DISABLED_REASONS = ("accessNotConfigured", "SERVICE_DISABLED")
_DAILY_SECONDS = 3600.0
_SAID_AT_MOST = 300
_RETRY_AFTER = re.compile(r"Retry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response."""

    status: int
    reasons: frozenset[str]
    said: str
    """Google's own message, in one line."""
    retry_after_seconds: float | None

    @property
    def is_rate_limit(self) -> bool:
        return self.status == 429 or (self.status == 403 and not self.reasons.isdisjoint(_RATE_REASONS))

    @property
    def is_about_project(self) -> bool:
        """The quota of the whole project is exhausted, not that of one user."""
        if "userRateLimitExceeded" in self.reasons or "user" in self.said.lower():
            return False
        return self.status == 403 or "PerProject" in self.said or "dailyLimitExceeded" in self.reasons

    @property
    def api_is_disabled(self) -> bool:
        return not self.reasons.isdisjoint(_DISABLED_REASONS)


def read_refusal(status: int, headers: Mapping[str, str], body: str | bytes) -> Refusal:
    """`headers` by lowercase name."""
    reasons, said = set(), ""
    try:
        error = json.loads(body)["error"]
        said = str(error.get("message", ""))
        reasons = {str(item.get("reason")) for item in (*error.get("errors", ()), *error.get("details", ()))}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    said = " ".join(said.split())[:_SAID_AT_MOST] or f"status {status}"
    return Refusal(status, frozenset(reasons - {"None"}), said, _pause(headers, said, reasons))


def _pause(headers: Mapping[str, str], said: str, reasons: set[str]) -> float | None:
    """The requested pause; a point in time is measured against the server's own clock."""
    pause = retry_after(headers, None)
    found = _RETRY_AFTER.search(said)
    if pause is None and found:
        now = http_date(headers.get("date", "")) or datetime.now(UTC)
        pause = max(1.0, (datetime.fromisoformat(found[1].replace("Z", "+00:00")) - now).total_seconds())
    return _DAILY_SECONDS if pause is None and "dailyLimitExceeded" in reasons else pause
