"""Quiet hours of a channel. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from archiver.errors import UsageError

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


def check_time(value: str, name: str) -> str:
    if not _TIME.fullmatch(value):
        raise UsageError(f"{name}={value[:20]!r}: expected a time of day such as 22:00")
    return value


def zone_named(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def end_of_quiet(now: datetime, quiet_from: str | None, quiet_until: str | None, zone: tzinfo) -> datetime | None:
    """When the quiet hours that hold at `now` end; None outside of them. They may pass midnight."""
    if quiet_from is None or quiet_until is None or quiet_from == quiet_until:
        return None
    local = now.astimezone(zone)
    begin, end, at = (_minutes(value) for value in (quiet_from, quiet_until, f"{local:%H:%M}"))
    is_quiet = begin <= at < end if begin < end else at >= begin or at < end
    if not is_quiet:
        return None
    day = local.date() + timedelta(days=1 if begin > end and at >= begin else 0)
    return datetime.combine(day, time(end // 60, end % 60), zone).astimezone(UTC)


def _minutes(value: str) -> int:
    hours, _, minutes = value.partition(":")
    return int(hours) * 60 + int(minutes)
