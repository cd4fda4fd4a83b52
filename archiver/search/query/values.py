"""The values of operators: dates and time spans in the user's zone, sizes, ids."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta, tzinfo
from uuid import UUID

_DAY = re.compile(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?")
_SPAN = re.compile(r"(\d{1,6})([hdwmy])", re.IGNORECASE)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BadValue(ValueError):
    """An invalid value. The message says what is expected."""


def period(text: str, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first moment of a year, month or day in the zone, and the first moment after it."""
    today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": 0, "yesterday": 1}.get(text.lower())
    if named is not None:
        day = _local(today.replace(tzinfo=None) - timedelta(days=named), zone)
        return day, _local(day.replace(tzinfo=None) + timedelta(days=1), zone)
    match = _DAY.fullmatch(text)
    if match is None:
        raise BadValue("expected a date: 2024-05-31, 2024-05, 2024, today or yesterday")
    year, month, day_number = (int(part) if part else None for part in match.groups())
    try:
        start = datetime(year or 0, month or 1, day_number or 1)
        if day_number:
            end = start + timedelta(days=1)
        elif month:
            end = start + timedelta(days=monthrange(start.year, month)[1])
        else:
            end = start.replace(year=start.year + 1)
    except (ValueError, OverflowError):
        raise BadValue(f"{text} is not a valid date") from None
    return _local(start, zone), _local(end, zone)


def ago(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The moment this long ago, with calendar months and years."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadValue("expected a time span: 12h, 3d, 2w, 6m (months) or 1y")
    count, unit = int(match[1]), match[2].lower()
    try:
        if unit in "hdw":
            return now - count * timedelta(hours={"h": 1, "d": 24, "w": 168}[unit])
        local = now.astimezone(zone)
        months = local.year * 12 + local.month - 1 - count * (12 if unit == "y" else 1)
        year, month = divmod(months, 12)
        day = min(local.day, monthrange(year, month + 1)[1])
        return _local(local.replace(year=year, month=month + 1, day=day, tzinfo=None), zone)
    except (ValueError, OverflowError):
        raise BadValue(f"{text} is too long ago") from None


def coming(text: str, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """A year, month or day; or a time span, from now on."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return period(text, now, zone)
    count, unit = int(match[1]), match[2].lower()
    days = count * {"h": 1 / 24, "d": 1, "w": 7, "m": 30.4375, "y": 365.25}[unit]
    try:
        return now, now + timedelta(days=days)
    except OverflowError:
        raise BadValue(f"{text} is too far in the future") from None


def size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadValue("expected a size: 500K, 10M, 1.5G, or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def sha256(text: str) -> str:
    if not _SHA256.fullmatch(text.lower()):
        raise BadValue("expected a SHA-256: 64 hexadecimal digits")
    return text.lower()


def thread(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise BadValue("expected the id of a thread") from None


def _local(moment: datetime, zone: tzinfo) -> datetime:
    return moment.replace(tzinfo=zone)
