"""What HTTP servers of all providers say in the same way."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

T = TypeVar("T")


def http_date(text: str) -> datetime | None:
    """A date in a header (RFC 9110, section 5.6.7); None if it is not one."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def retry_after(value: str, date: str, default: T) -> float | T:
    """The header Retry-After in seconds. A date is measured against the server's own clock, its header Date, since ours may be
    wrong."""
    if value.strip().replace(".", "", 1).isdecimal():
        return float(value)
    until, now = http_date(value.strip()), http_date(date)
    return max(0.0, (until - now).total_seconds()) if until and now else default
