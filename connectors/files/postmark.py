"""The `From ` line that begins a message in an mbox, and how to distinguish it from a line of text that begins the same way."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from connectors.mboxrd import announced_bytes

LINE_BYTES = 1000
_TIME = re.compile(rb"\b\d{1,2}:\d{2}\b")
_YEAR = re.compile(rb"\b(?:19|20)\d{2}\b")
_WORD = re.compile(rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b")
_FIELD = re.compile(rb">?From |[!-9;-~]{1,100}[ \t]*:")
_WELL_KNOWN = re.compile(
    rb"(?:From|To|Cc|Subject|Date|Received|Message-ID|Return-Path|Delivered-To|MIME-Version|Content-Type|Sender|Reply-To|Status"
    rb"|X-[a-z0-9-]{1,60}|DKIM-Signature|Path|Newsgroups)[ \t]*:",
    re.IGNORECASE,
)
_OBSOLETE_FIELD = re.compile(rb"From[ \t]+:")  # RFC 5322, section 4.5: spaces before the colon of a field
_DASH = re.compile(rb"From -[ \t]*\r?\Z")
_UNDATED = re.compile(rb"From [^\s@]+@[^\s@]+[ \t]*\r?\Z")
_OF_GIT = re.compile(rb"From \S{1,200} Mon Sep 17 00:00:00 2001\r?\n?\Z")
_PATCH = re.compile(rb"From (?:[0-9a-f]{40}|[0-9a-f]{64}) Mon Sep 17 00:00:00 2001\r?\n?\Z")
_ASCTIME = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2})"
    rb" +(\d{1,2}):(\d{2})(?::(\d{2}))?"
    rb"(?: +([+-]\d{4}|[A-Z]{1,5}))? +(\d{4})(?: +([+-]\d{4}))?"
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


def is_dated(line: bytes) -> bool:
    return bool(_TIME.search(line) and _YEAR.search(line) and _WORD.search(line))


def begins_patches(line: bytes) -> bool:
    """Whether a file that begins with this line holds patches of git, which all have the same date."""
    return _OF_GIT.match(line) is not None


def is_postmark(text: bytes, *, after_blank: bool = True, lenient: bool = False, patches: bool = True) -> bool:
    """Whether a message begins here. `text` starts at `From ` and holds the next line too, or the end of the file.

    A postmark has a date, and what follows is a header field; or nothing at all, if an empty line was before it. `lenient`, for
    files whose first postmark has no date: an empty line before, and a header field after it, are enough; without the empty
    line, it has to be an address or a dash, and a field that mail really has has to follow.
    `patches`: a commit and the date of `git format-patch` count. They do in files of patches; elsewhere a patch is in a body.
    """
    if not text.startswith(b"From ") or _OBSOLETE_FIELD.match(text):
        return False
    end = text.find(b"\n", 0, LINE_BYTES)
    line = text[:end] if end >= 0 else text
    if announced_bytes(line) is not None:
        return True
    if not patches and _PATCH.match(line):
        return False
    if end < 0:
        return after_blank and len(text) < LINE_BYTES and is_dated(text)  # the last line of a file: cut off
    follows = text[end + 1 : end + 120]
    is_header = _FIELD.match(follows) is not None
    if is_dated(line):
        return is_header or (after_blank and (not follows or follows.startswith((b"\n", b"\r\n"))))
    if _DASH.match(line) or (lenient and _UNDATED.match(line)):
        return _WELL_KNOWN.match(follows) is not None or (lenient and after_blank and is_header)
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
