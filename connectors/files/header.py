"""Reads what mail programs write into the header of their own copy: labels, flags, deletion."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import parsedate_to_datetime

HEADER_BYTES = 64 << 10
_FIELDS = (b"x-gmail-labels", b"x-mozilla-status", b"x-mozilla-keys", b"x-keywords", b"x-status", b"status")
_FOLD = re.compile(rb"\r?\n(?=[ \t])")
_READ, _REPLIED, _MARKED, _EXPUNGED, _FORWARDED = 0x0001, 0x0002, 0x0004, 0x0008, 0x1000
_STATUS_FLAGS = {"R": "\\Seen", "A": "\\Answered", "F": "\\Flagged", "D": "\\Deleted", "T": "\\Draft"}


@dataclass(frozen=True, slots=True)
class Marks:
    flags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    is_expunged: bool = False
    """Deleted in Thunderbird, but still in its file."""


NO_MARKS = Marks()


def header_of(data: bytes) -> bytes:
    """The header block, up to HEADER_BYTES."""
    head = data[:HEADER_BYTES]
    if head.startswith((b"\n", b"\r\n")):
        return b""
    ends = [end + 1 for end in (head.find(b"\n\n"), head.find(b"\n\r\n")) if end >= 0]
    return head[: min(ends)] if ends else head


def read_marks(header: bytes) -> Marks:
    lower = b"\n" + header.lower()
    found = {name: _value(header, at) for name in _FIELDS if (at := lower.find(b"\n" + name + b":")) >= 0}
    if not found:
        return NO_MARKS
    flags: set[str] = set()
    labels: list[str] = []
    for letter in found.get(b"status", "") + found.get(b"x-status", ""):
        if letter in _STATUS_FLAGS:
            flags.add(_STATUS_FLAGS[letter])
    status = _hex(found.get(b"x-mozilla-status", ""))
    for bit, flag in ((_READ, "\\Seen"), (_REPLIED, "\\Answered"), (_MARKED, "\\Flagged"), (_FORWARDED, "$Forwarded")):
        if status & bit:
            flags.add(flag)
    flags.update(found.get(b"x-mozilla-keys", "").split())
    flags.update(found.get(b"x-keywords", "").split())
    if b"x-gmail-labels" in found:
        labels = _gmail_labels(found[b"x-gmail-labels"])
        flags.update(flag for label, flag in (("Starred", "\\Flagged"), ("Drafts", "\\Draft")) if label in labels)
        if "Unread" not in labels:
            flags.add("\\Seen")
    return Marks(tuple(sorted(flags)), tuple(labels), bool(status & _EXPUNGED))


def header_date(header: bytes) -> datetime | None:
    """The Date field, for the date rule; the engine parses it more carefully."""
    at = (b"\n" + header.lower()).find(b"\ndate:")
    try:
        found = parsedate_to_datetime(_value(header, at)) if at >= 0 else None
    except (ValueError, TypeError, IndexError):
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found


def _value(header: bytes, at: int) -> str:
    """Unfolded; `at` is where the field's name begins."""
    start = header.find(b":", at) + 1
    end = start
    while (end := header.find(b"\n", end)) >= 0 and header[end + 1 : end + 2] in (b" ", b"\t"):
        end += 1
    return _FOLD.sub(b"", header[start : end if end >= 0 else None]).decode("utf-8", "replace").strip()


def _hex(text: str) -> int:
    try:
        return int(text[:8], 16)
    except ValueError:
        return 0


def _gmail_labels(value: str) -> list[str]:
    """Separated by commas, quoted if a label contains one, as encoded words if it is not ASCII."""
    if "=?" in value:
        try:
            pieces = [
                (piece.decode(charset or "ascii", "replace") if isinstance(piece, bytes) else piece)
                for piece, charset in decode_header(value)
            ]
            value = "".join(pieces)
        except (HeaderParseError, LookupError, ValueError):
            pass
    try:
        row = next(csv.reader([value.replace("\n", " ").replace("\r", " ")], skipinitialspace=True), [])
    except csv.Error:
        row = value.split(",")
    return list(dict.fromkeys(label.strip().replace("\0", "") for label in row if label.strip()))
