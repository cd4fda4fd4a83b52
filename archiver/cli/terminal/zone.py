"""The time zone of the command line: TZ, or else that of this machine."""

from __future__ import annotations

import os
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from archiver.errors import UsageError

_LINK = Path("/etc/localtime")


def local_zone() -> tzinfo:
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        _, _, name = str(_LINK.resolve()).partition("zoneinfo/")
    try:
        return named_zone(name) if name else UTC
    except UsageError:
        return UTC


def local_zone_name() -> str:
    return str(local_zone())


def named_zone(name: str) -> tzinfo:
    """Europe/Berlin and the like. Raises UsageError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"unknown time zone {name!r}; expected a name such as Europe/Berlin") from None
