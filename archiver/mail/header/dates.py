"""Dates of mail: parsing them in every spelling that occurs, and choosing the date by which a message is sorted."""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol

from archiver.mail import limits
from archiver.mail.header.months import MONTHS
from archiver.mail.header.zones import ZONES

_USUAL = re.compile(
    r"\s*(?:[A-Za-z]{2,9},?\s*)?(\d{1,2})\s+([A-Za-z]{3})[a-z]*\s+(\d{4})\s+(\d{1,2}):(\d{2})(?::(\d{2}))?\s+([+-]\d{4})(?!\d)"
)
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]+|$|(?=\D))")
_COMPACT = re.compile(r"\b(\d{4})(\d{2})(\d{2})(?:T?(\d{2})(\d{2})(\d{2}))\b")
_NUMERIC = re.compile(r"(?<![\d:+-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\d:])")
_TIME = re.compile(r"(?<!\d)(\d{1,2})[:.](\d{2})(?:[:.](\d{2})(?:[.,]\d+)?)?(?![\d.])\s*([AaPp]\.?[Mm]\b\.?)?")
_OFFSET = re.compile(r"([+-])\s?(\d{1,2})[:-]?(\d{2})?(?!\d|[:.]\d)")  # +05-30 occurs as well
_WORD = re.compile(r"[^\W\d_]+\.?", re.UNICODE)
_NUMBER = re.compile(r"(?<![\d:+.-])\d{1,4}(?![\d:])")
_JOINED = re.compile(r"(?<=[^\W_])[-/.,](?=[^\W_])")
_COMMENT = re.compile(r"\([^()]*\)")

_BEFORE_RECEIPT = timedelta(days=3653)
_AFTER_RECEIPT = timedelta(days=1)
_DELIVERY = timedelta(days=2)  # within this delay, the `Received` fields need not be parsed
_FIRST_MAIL = datetime(1982, 1, 1, tzinfo=UTC)  # RFC 822 is of 1982; clocks without a battery start in 1970 or 1980
_MAX_OFFSET_MINUTES = 24 * 60 - 1  # more than any zone has, but such offsets occur, and Python accepts them


class ParsedDateOrigin(StrEnum):
    """Where a date comes from."""

    DATE = "date"
    SERVER = "server"
    RECEIVED = "received"
    NONE = "none"


class DatedBy(NamedTuple):
    """The date of a message in UTC, and its origin. None if neither the message nor the server has a date."""

    value: datetime | None
    origin: ParsedDateOrigin


def choose_date(header_date: datetime | None, received_at: datetime | None, first_received: datetime | None) -> DatedBy:
    """The `Date` field, else the first `Received`, else the date of the server; never the current time."""
    if header_date is not None:
        return DatedBy(header_date, ParsedDateOrigin.DATE)
    if first_received is not None:
        return DatedBy(first_received, ParsedDateOrigin.RECEIVED)
    if received_at is not None:
        return DatedBy(received_at, ParsedDateOrigin.SERVER)
    return DatedBy(None, ParsedDateOrigin.NONE)


class ReceivedTrace(Protocol):
    """The dates of the `Received` fields of a message, parsed on demand."""

    @property
    def first_received(self) -> datetime | None:
        """When the last server received it, which is nearest to the recipient and hardest to forge."""

    @property
    def oldest_received(self) -> datetime | None:
        """When the first server received it."""


def sort_date(header_date: datetime | None, received_at: datetime | None, trace: ReceivedTrace) -> datetime | None:
    """`Date`, unless it is missing, later than the receipt, or contradicted by the oldest `Received`; then the time of receipt.

    The server's date alone does not contradict an older `Date`: mail that was copied into an account has the date of the copy.
    """
    if header_date is not None and received_at is not None and -_DELIVERY <= header_date - received_at <= _AFTER_RECEIPT:
        return header_date
    if header_date is None:
        return _receipt(received_at, trace)
    oldest = trace.oldest_received
    if oldest is not None:
        is_true = -_BEFORE_RECEIPT <= header_date - oldest <= _AFTER_RECEIPT
    else:
        is_true = header_date >= _FIRST_MAIL or received_at is None
    if is_true and (received_at is None or header_date - received_at <= _AFTER_RECEIPT):
        return header_date
    return _receipt(received_at, trace) or header_date


def _receipt(received_at: datetime | None, trace: ReceivedTrace) -> datetime | None:
    """`Received` is more reliable than the server's date, which may be that of a copy, unless it is later than that date."""
    first = trace.first_received
    if first is None or (received_at is not None and first - received_at > _AFTER_RECEIPT):
        return received_at
    return first


def parse_date(text: str) -> datetime | None:
    """A date in UTC; None if the text contains none. A date without a zone is taken as UTC."""
    usual = _USUAL.match(text)
    if usual is not None:
        day, name, year, hour, minute, second, zone = usual.groups()
        month = MONTHS.get(name.lower())
        if month is not None:
            clock = int(hour), int(minute), int(second or 0)
            try:
                return datetime(int(year), month, int(day), *clock, tzinfo=UTC) - _east(zone)
            except (ValueError, OverflowError):
                return _utc(int(year), month, int(day), clock, _offset(zone))
    return _tolerant(text[: limits.DATE_CHARS])


def _tolerant(text: str) -> datetime | None:
    comments = " ".join(_COMMENT.findall(text))
    rest = _COMMENT.sub(" ", text)
    compact = _COMPACT.search(rest)
    if compact is not None:
        year, month, day, hour, minute, second = map(int, compact.groups())
        return _utc(year, month, day, (hour, minute, second), _zone(rest[compact.end() :], comments))
    day_found = _numeric_day(rest) if _month_name(rest) is None else None
    if day_found is not None:
        year, month, day, (start, end) = day_found
        rest = f"{rest[:start]} {rest[end:]}"
    clock, rest, after = _clock(rest)
    offset = _zone(after, comments) if after.strip() else _zone(rest, comments)
    if day_found is None:
        named = _named_day(rest)
        if named is None:
            return None
        year, month, day = named
    return _utc(year, month, day, clock, offset)


def _numeric_day(text: str) -> tuple[int, int, int, tuple[int, int]] | None:
    iso = _ISO.search(text)
    if iso is not None:
        return int(iso[1]), int(iso[2]), int(iso[3]), iso.span()
    numeric = _NUMERIC.search(text)
    if numeric is None:
        return None
    first, separator, second, year = int(numeric[1]), numeric[2], int(numeric[3]), _year(numeric[4])
    # 23.06.2026 begins with the day, 06/23/2026 with the month. If both are possible, the separator decides.
    day_first = first > 12 or (separator == "." and second <= 12)
    day, month = (first, second) if day_first else (second, first)
    return year, month, day, numeric.span()


def _named_day(text: str) -> tuple[int, int, int] | None:
    """`1 Jan 98`, `Jan 1, 1998`, `Thu Jan  1 00:00:00 1998` with the clock cut out, `1. März 2003`."""
    text = _JOINED.sub(" ", text)
    month = _month_name(text)
    numbers: list[str] = _NUMBER.findall(text)
    if not numbers:
        return None
    if month is None:
        return _month_in_cjk(text)
    if len(numbers) == 1:
        return None
    if len(numbers[0]) >= 3 and len(numbers[1]) <= 2:  # 1998 Jan 1
        return _year(numbers[0]), month, int(numbers[1])
    return _year(numbers[1]), month, int(numbers[0])


def _month_name(text: str) -> int | None:
    for word in _WORD.findall(text):
        month = MONTHS.get(word.rstrip(".").lower())
        if month is not None:
            return month
    return None


def _month_in_cjk(text: str) -> tuple[int, int, int] | None:
    found = re.search(r"(\d{4})\s?[年년]\s?(\d{1,2})\s?[月월]\s?(\d{1,2})\s?[日일]", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _clock(text: str) -> tuple[tuple[int, int, int], str, str]:
    """The time of day, the text without it, and the text after it, which contains the zone."""
    found = _TIME.search(text)
    if found is None:
        return (0, 0, 0), text, ""
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    half = (found[4] or "")[:1].lower()
    if half and 1 <= hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    after = text[found.end() :]
    return (hour, minute, second), f"{text[: found.start()]} {after}", after


def _zone(text: str, comments: str) -> int:
    """Minutes east of Greenwich."""
    for place in (text, comments):
        offset = _OFFSET.search(place)
        if offset is not None:
            minutes = int(offset[2]) * 60 + int(offset[3] or 0)
            return minutes if offset[1] == "+" else -minutes
        for word in _WORD.findall(place):
            if word.rstrip(".").upper() in ZONES:
                return ZONES[word.rstrip(".").upper()]
    return 0


def _year(digits: str) -> int:
    """RFC 5322, section 4.3: two digits from 50 on and three digits count from 1900, below 50 from 2000."""
    year = int(digits)
    if len(digits) <= 2:
        return year + (2000 if year < 50 else 1900)
    return year + 1900 if len(digits) == 3 else year


@lru_cache(maxsize=512)
def _east(zone: str) -> timedelta:
    offset = _offset(zone)
    return timedelta(minutes=offset if abs(offset) <= _MAX_OFFSET_MINUTES else 0)


def _offset(zone: str) -> int:
    """Minutes east of Greenwich, from `+0130`."""
    minutes = int(zone[1:3]) * 60 + int(zone[3:])
    return minutes if zone[0] == "+" else -minutes


def _utc(year: int, month: int, day: int, clock: tuple[int, int, int], offset: int) -> datetime | None:
    hour, minute, second = clock
    if abs(offset) > _MAX_OFFSET_MINUTES:
        offset = 0
    try:
        there = datetime(year, month, day, hour % 24, minute, min(second, 59), tzinfo=UTC)
        if hour == 24:
            offset -= 24 * 60
        return there - timedelta(minutes=offset)
    except (ValueError, OverflowError):
        return None
