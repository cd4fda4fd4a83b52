"""The time zone of whoever types a command: that of TZ, or of this machine."""

from __future__ import annotations

import os
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from archiver.errors import UsageError

_LINK = Path("/etc/localtime")


def local_zone() -> tzinfo:
    given = os.environ.get("TZ", "").lstrip(":")
    if not given:
        _, _, given = str(_LINK.resolve()).partition("zoneinfo/")
    try:
        return named_zone(given) if given else UTC
    except UsageError:
        return UTC


def named_zone(name: str) -> tzinfo:
    """Europe/Berlin and the like. Raises UsageError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"there is no time zone {name!r}; names look like Europe/Berlin") from None
