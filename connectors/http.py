"""What all HTTP clients of the connectors share."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from connectors.errors import Unavailable

T = TypeVar("T")


class ClosableClient:
    """A client that any thread may close, even during a request. Subclasses also wake the threads that wait for a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def ensure_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the connection was closed")

    def pause(self, seconds: float) -> None:
        """Ends early when the client is closed."""
        self._closed.wait(seconds)
        self.ensure_open()


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
