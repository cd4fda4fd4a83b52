"""Filterable tokens: the same spelling in documents and in queries, whatever engine compares them.

Words are folded here, so that a filter finds what a search for the word finds. Signs that the filter language gives a meaning
to are written as percent codes, and what is longer than an engine keeps of a value is replaced by its hash.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo

_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"'\\%]")
_MAX_BYTES = 240  # Meilisearch keeps 468 bytes of a value
_NEAR_NEW_YEAR = timedelta(hours=15)  # no time zone is further from UTC
_QUARTER = timedelta(minutes=15)  # nor does one differ from UTC by less than this


def token(value: str) -> str:
    """A value as a token. Case does not count for the engines; other spellings of one character are made one."""
    value = unicodedata.normalize("NFC", " ".join(value.split())) if not value.isascii() else " ".join(value.split())
    value = _SPECIAL.sub(lambda match: f"%{ord(match[0]):02x}", value)
    if len(value) * 4 > _MAX_BYTES and len(value.encode("utf-8", "replace")) > _MAX_BYTES:
        value = f"{value[:40]}…{hashlib.sha256(value.lower().encode('utf-8', 'replace')).hexdigest()[:32]}"
    return value


def copy_token(mailbox_id: object, value: str) -> str:
    """What belongs to a copy: nobody can ask for it without naming the mailbox."""
    return f"{mailbox_id}/{token(value)}"


def year_token(at: datetime) -> str:
    """The year in UTC, or for mail around New Year the quarter of an hour, from which each time zone knows its year."""
    at = at.astimezone(UTC)
    if (at - _NEAR_NEW_YEAR if at.year > 1 else at).year == (at + _NEAR_NEW_YEAR if at.year < 9999 else at).year:
        return f"{at.year:04}"
    return (at - (at - at.replace(minute=0, second=0, microsecond=0)) % _QUARTER).strftime("%Y-%m-%dT%H:%M")


def year_of(value: str, zone: tzinfo) -> int:
    """The year that a token of `year_token` means in a time zone."""
    if len(value) == 4:
        return int(value)
    return datetime.fromisoformat(value).replace(tzinfo=UTC).astimezone(zone).year


def month_token(at: datetime) -> str:
    """The month in UTC."""
    at = at.astimezone(UTC)
    return f"{at.year:04}-{at.month:02}"
