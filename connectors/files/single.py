"""Files with one message each: .eml, MH, Maildir, and Apple's .emlx."""

from __future__ import annotations

import codecs
import plistlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.parsers.expat import ExpatError

from connectors.files.open_file import OpenFile

_PLIST_BYTES = 256 << 10
_COUNT = re.compile(rb"\s*(\d{1,12})\s*?\r?\n")
_APPLE_FLAGS = {0: "\\Seen", 1: "\\Deleted", 2: "\\Answered", 4: "\\Flagged", 6: "\\Draft", 8: "$Forwarded"}
_MAILDIR_FLAGS = {"S": "\\Seen", "R": "\\Answered", "F": "\\Flagged", "T": "\\Deleted", "D": "\\Draft", "P": "$Forwarded"}
_INFO = re.compile(r"[:;!]2,([^:;!/]*)$")
_EARLIEST, _LATEST = 315532800, 4102444800  # 1980 and 2100: other numbers are not times


@dataclass(frozen=True, slots=True)
class Single:
    """The position of the message in its file, and what the file or its name says about it."""

    start: int
    end: int
    flags: tuple[str, ...] = ()
    received_at: datetime | None = None
    defect: str | None = None
    encoding: str = ""
    """Of a message that was saved as text in UTF-16; it is archived in UTF-8."""

    def pieces(self, file: OpenFile) -> Iterator[bytes]:
        pieces = file.pieces(self.start, self.end)
        if not self.encoding:
            yield from pieces
            return
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        for piece in pieces:
            yield decoder.decode(piece).removeprefix("\ufeff").encode()
        yield decoder.decode(b"", final=True).encode()


def plain(file: OpenFile, start: int = 0, encoding: str = "") -> Single:
    return Single(start, file.size, encoding=encoding)


def emlx(file: OpenFile, name: str) -> Single:
    """A byte count, that number of bytes, and a property list with flags."""
    head = _COUNT.match(file.read(0, 64))
    if not head:
        return Single(0, file.size, defect="it does not begin with a number of bytes, as .emlx files do")
    start, length = head.end(), int(head[1])
    if start + length > file.size:
        return Single(start, file.size, defect=f"truncated: {length:,} bytes are announced, {file.size - start:,} are there")
    values = _property_list(file.read(start + length, start + length + _PLIST_BYTES))
    bits, received = values.get("flags"), values.get("date-received")
    flags = tuple(flag for bit, flag in _APPLE_FLAGS.items() if isinstance(bits, int) and bits >> bit & 1)
    partial = name.lower().endswith(".partial.emlx")
    defect = "Apple Mail keeps its attachments in other files: archived without them" if partial else None
    return Single(start, start + length, flags, _moment(received), defect)


def _property_list(data: bytes) -> dict[str, Any]:
    try:
        values = plistlib.loads(data.strip(), fmt=plistlib.FMT_XML)
    except (ExpatError, plistlib.InvalidFileException, ValueError, AttributeError, KeyError, IndexError, OverflowError):
        return {}
    return values if isinstance(values, dict) else {}


def maildir_flags(name: str) -> tuple[str, ...]:
    info = _INFO.search(name)
    return tuple(flag for letter, flag in _MAILDIR_FLAGS.items() if info and letter in info[1].split(",")[0])


def maildir_unique(name: str) -> str:
    """The part of a name that does not change with the flags."""
    return _INFO.sub("", name)


def maildir_date(name: str) -> datetime | None:
    """The name begins with the second of delivery."""
    seconds = name.partition(".")[0]
    return _moment(int(seconds)) if seconds.isascii() and seconds.isdigit() and len(seconds) < 12 else None


def _moment(seconds: object) -> datetime | None:
    if isinstance(seconds, int | float) and _EARLIEST < seconds < _LATEST:
        return datetime.fromtimestamp(seconds, UTC)
    return None


def mh_flags(sequences: bytes) -> dict[str, tuple[str, ...]]:
    """By message number, from `.mh_sequences`. Messages not listed as unseen are seen; the default has an empty name."""
    named: dict[str, set[str]] = {}
    for line in sequences[:SEQUENCES_BYTES].decode("utf-8", "replace").splitlines():
        name, _, numbers = line.partition(":")
        named[name.strip().lower()] = set(_numbers(numbers))
    if "unseen" not in named:
        return {"": ()}
    flags: dict[str, tuple[str, ...]] = {"": ("\\Seen",)}
    for number in set().union(*named.values()):
        seen = () if number in named["unseen"] else ("\\Seen",)
        answered = ("\\Answered",) if number in named.get("replied", ()) or number in named.get("answered", ()) else ()
        flagged = ("\\Flagged",) if number in named.get("flagged", ()) else ()
        flags[number] = (*answered, *flagged, *seen)
    return flags


SEQUENCES_BYTES = 1 << 20
_NUMBERS_LIMIT = 1_000_000


def _numbers(text: str) -> Iterator[str]:
    count = 0
    for part in text.split():
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or len(first) > 9 or len(last) > 9:
            continue
        for number in range(int(first), int(last or first) + 1):
            count += 1
            if count > _NUMBERS_LIMIT:
                return
            yield str(number)
