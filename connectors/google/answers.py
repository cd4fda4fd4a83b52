"""What Google's errors mean: pure functions from an answer to what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_RATE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded", "RATE_LIMIT_EXCEEDED")
_DISABLED_REASONS = ("accessNotConfigured", "SERVICE_DISABLED")
_DAILY_SECONDS = 3600.0
_SAID_AT_MOST = 300
_RETRY_AFTER = re.compile(r"Retry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is not what was asked for."""

    status: int
    reasons: frozenset[str]
    said: str
    """Google's own sentence, one line."""
    retry_after_seconds: float | None

    @property
    def is_rate_limit(self) -> bool:
        return self.status == 429 or (self.status == 403 and not self.reasons.isdisjoint(_RATE_REASONS))

    @property
    def is_about_project(self) -> bool:
        """The quota of the whole project, not that of one user."""
        if "userRateLimitExceeded" in self.reasons or "user" in self.said.lower():
            return False
        return self.status == 403 or "PerProject" in self.said or "dailyLimitExceeded" in self.reasons

    @property
    def api_is_disabled(self) -> bool:
        return not self.reasons.isdisjoint(_DISABLED_REASONS)


def read_refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """`headers` by their names in small letters."""
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
    """By the server's own clock, where it names a time."""
    given = headers.get("retry-after", "").strip()
    if given.isdigit():
        return float(given)
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    until = _date(given)
    found = _RETRY_AFTER.search(said)
    if until is None and found:
        until = datetime.fromisoformat(found[1].replace("Z", "+00:00"))
    if until is not None:
        return max(1.0, (until - now).total_seconds())
    return _DAILY_SECONDS if "dailyLimitExceeded" in reasons else None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
