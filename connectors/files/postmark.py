"""The `From ` line that begins a message in an mbox, and how to tell it from a line of text that begins in the same way."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

LINE_BYTES = 1000
_TIME = re.compile(rb"\b\d{1,2}:\d{2}\b")
_YEAR = re.compile(rb"\b(?:19|20)\d{2}\b")
_WORD = re.compile(rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b")
_FIELD = re.compile(rb">?From |[!-9;-~]{1,100}[ \t]*:")
_ASCTIME = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2})"
    rb" +(\d{1,2}):(\d{2})(?::(\d{2}))?"
    rb"(?: +([+-]\d{4}|[A-Z]{1,5}))? +(\d{4})(?: +([+-]\d{4}))?"
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


def is_dated(line: bytes) -> bool:
    return bool(_TIME.search(line) and _YEAR.search(line) and _WORD.search(line))


def is_postmark(text: bytes, *, after_blank: bool = True, lenient: bool = False) -> bool:
    """Whether a message begins here. `text` starts at `From ` and holds the next line too, or the end of the file.

    A postmark has a date, and what follows is a header field; or nothing at all, if an empty line was before it. `lenient`, for
    files whose first postmark has no date: an empty line before, and a header field after it, are enough.
    """
    if not text.startswith(b"From "):
        return False
    end = text.find(b"\n", 0, LINE_BYTES)
    if end < 0:
        return after_blank and len(text) < LINE_BYTES and is_dated(text)  # the last line of a file: cut off
    follows = text[end + 1 : end + 120]
    is_header = _FIELD.match(follows) is not None
    if is_dated(text[:end]):
        return is_header or (after_blank and (not follows or follows.startswith((b"\n", b"\r\n"))))
    return lenient and after_blank and is_header


def postmark_date(line: bytes) -> datetime | None:
    found = _ASCTIME.search(line)
    if not found:
        return None
    month, day, hour, minute, second, zone, year, late_zone = found.groups()
    try:
        at = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    offset = late_zone or (zone if zone and zone[:1] in b"+-" else None)
    if not offset:
        return at
    minutes = int(offset[1:3]) * 60 + int(offset[3:5])
    if minutes >= 24 * 60:
        return at
    return at.replace(tzinfo=timezone(timedelta(minutes=-minutes if offset[:1] == b"-" else minutes)))
