"""Filterable tokens: spelled the same in documents and queries, whichever engine compares them.

Words are folded here, so that a filter finds what a search for the word finds. Characters with a meaning in the filter language
are percent-encoded, and values longer than an engine stores are replaced by their hash.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo

_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"'\\%]")
_MAX_BYTES = 240  # Meilisearch stores 468 bytes of a value
_NEAR_NEW_YEAR = timedelta(hours=15)  # no time zone is further from UTC
_QUARTER = timedelta(minutes=15)  # time zone offsets are multiples of this


def token(value: str) -> str:
    """A value as a token. Engines ignore case; different encodings of one character are unified."""
    value = unicodedata.normalize("NFC", " ".join(value.split())) if not value.isascii() else " ".join(value.split())
    value = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02x}", value)
    if len(value) * 4 > _MAX_BYTES and len(value.encode("utf-8", "replace")) > _MAX_BYTES:
        value = f"{value[:40]}…{hashlib.sha256(value.lower().encode('utf-8', 'replace')).hexdigest()[:32]}"
    return value


def copy_token(mailbox_id: object, value: str) -> str:
    """A value of one copy: it can only be queried together with its mailbox."""
    return f"{mailbox_id}/{token(value)}"


def year_token(at: datetime) -> str:
    """The year in UTC or, for mail around New Year, the quarter of an hour, from which the year in any time zone follows."""
    at = at.astimezone(UTC)
    if (at - _NEAR_NEW_YEAR if at.year > 1 else at).year == (at + _NEAR_NEW_YEAR if at.year < 9999 else at).year:
        return f"{at.year:04}"
    return (at - (at - at.replace(minute=0, second=0, microsecond=0)) % _QUARTER).strftime("%Y-%m-%dT%H:%M")


def year_of(value: str, zone: tzinfo) -> int:
    """The year that a `year_token` means in a time zone."""
    if len(value) == 4:
        return int(value)
    return datetime.fromisoformat(value).replace(tzinfo=UTC).astimezone(zone).year


def month_token(at: datetime) -> str:
    """The month in UTC."""
    at = at.astimezone(UTC)
    return f"{at.year:04}-{at.month:02}"
