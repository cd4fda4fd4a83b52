"""Finds the large parts of a message by scanning for its delimiter lines. A wrong guess costs space, never bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from archiver.store import base64_lines
from archiver.store.base64_lines import Lines
from archiver.store.content import MemoryContent, Raw, pieces

MIN_PART_BYTES = 16 << 10
_WINDOW_BYTES = 4 << 20
_HEADER_BYTES = 64 << 10
_MAX_BOUNDARIES = 200
_MAX_NESTED_MESSAGES = 50
_SHORT_HEADER_BYTES = 2 << 10  # most headers of parts are shorter
_MAX_PARTS = 10_000
_LONGEST_BOUNDARY = 250  # RFC 2046 allows 70; some mailers write more

_BOUNDARY = re.compile(rb'\bboundary[ \t]*=[ \t]*(?:"([^"\r\n]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_BASE64 = re.compile(rb"^content-transfer-encoding:[ \t]*base64\b", re.IGNORECASE | re.MULTILINE)
_MESSAGE = re.compile(rb"^content-type:[ \t\r\n]*message/(?:rfc822|global)\b", re.IGNORECASE | re.MULTILINE)
_END_OF_HEADER = re.compile(rb"\n\r?\n")
_DELIMITER = re.compile(rb"\n--([^\r\n]{1,%d})(?=[\r\n]|\Z)" % _LONGEST_BOUNDARY)


@dataclass(frozen=True, slots=True)
class Cut:
    """A range of the message that is stored as a part. `lines`: how it is encoded again; None: it is stored unchanged."""

    start: int
    end: int
    lines: Lines | None
    sha256: bytes
    """Of the part as it is stored, and its size; its bytes too if the message is in memory."""
    size: int
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Body:
    start: int
    end: int
    base64: bool


def find_cuts(raw: Raw) -> list[Cut]:
    """In the order of the message, never overlapping."""
    if raw.size < MIN_PART_BYTES:
        return []
    return [_cut(raw, body) for body in _bodies(raw) if body.end - body.start >= MIN_PART_BYTES]


def _cut(raw: Raw, body: _Body) -> Cut:
    if body.base64:
        end = _without_line_ends(raw, body.start, body.end)
        lines = base64_lines.find_lines(raw, body.start, end)
        measured = _measure(raw, base64_lines.decode(raw, body.start, end, lines)) if lines else None
        if measured is not None:
            return Cut(body.start, end, lines, *measured)
    measured = _measure(raw, pieces(raw, body.start, body.end))
    assert measured is not None, "only decoding can fail"
    return Cut(body.start, body.end, None, *measured)


def _measure(raw: Raw, stored: Iterable[bytes | None]) -> tuple[bytes, int, bytes | None] | None:
    """SHA-256, size and, of a message in memory, the bytes; None where a piece is None."""
    digest, size, kept = hashlib.sha256(), 0, []
    in_memory = isinstance(raw, MemoryContent)
    for piece in stored:
        if piece is None:
            return None
        digest.update(piece)
        size += len(piece)
        if in_memory:
            kept.append(piece)
    return digest.digest(), size, b"".join(kept) if in_memory else None


def _without_line_ends(raw: Raw, start: int, end: int) -> int:
    tail = raw.read(max(start, end - 64), end)
    return end - (len(tail) - len(tail.rstrip(b"\r\n")))


def _bodies(raw: Raw) -> Iterator[_Body]:
    boundaries: set[bytes] = set()
    blank_lines = _BlankLines(raw)
    start, base64 = _read_header(raw, 0, boundaries, blank_lines)
    found = 0
    for at, after, text in _delimiter_lines(raw):
        line = text.rstrip(b" \t")
        closing = line.endswith(b"--") and line[:-2] in boundaries
        if (line not in boundaries and not closing) or at < start:
            continue
        found += 1
        if found > _MAX_PARTS:  # no real message has that many: the rest is one body
            break
        if start >= 0:
            yield _Body(start, max(start, _before_line_end(raw, start, at)), base64)
        start, base64 = (-1, False) if closing else _read_header(raw, after, boundaries, blank_lines)
    if start >= 0:
        yield _Body(start, raw.size, base64)


def _before_line_end(raw: Raw, start: int, at: int) -> int:
    """The line end before a delimiter belongs to the delimiter (RFC 2046, 5.1.1)."""
    before = raw.read(max(start, at - 2), at)
    return at - (2 if before.endswith(b"\r\n") else 1 if before.endswith(b"\n") else 0)


class _BlankLines:
    """The ends of headers. Remembers where it has looked: a message may have thousands of delimiters, and no blank line near
    any of them."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._found = (1, 0, 0)
        """Asked from there, the first one begins there and ends there."""
        self._barren = (1, 0)
        """None begins in there."""

    def after(self, start: int, limit: int) -> int:
        """Where the first one ends that begins at `start` or later; -1 if there is none up to `limit`."""
        asked, begin, end = self._found
        if asked <= start <= begin:
            return end if end <= limit else -1
        begin, at = self._barren
        if not begin <= start <= at:
            begin = at = start
        step = _SHORT_HEADER_BYTES
        while at + 1 < limit:
            piece = self._raw.read(at, min(limit, at + step))
            match = _END_OF_HEADER.search(piece)
            if match is not None:
                self._found = (start, at + match.start(), at + match.end())
                return at + match.end()
            is_last = at + len(piece) >= limit
            at = max(at, at + len(piece) - 2)  # one may begin in the last two bytes
            if is_last:
                break
            step = _HEADER_BYTES
        self._barren = (begin, at)
        return -1


def _read_header(raw: Raw, start: int, boundaries: set[bytes], blank_lines: _BlankLines) -> tuple[int, bool]:
    """Where the body begins (-1: there is none), and whether it is base64. Learns the boundaries that the header declares."""
    for _ in range(_MAX_NESTED_MESSAGES):
        first = raw.read(start, min(raw.size, start + 2))
        if first[:1] == b"\n" or first == b"\r\n":
            return start + first.index(b"\n") + 1, False
        end = blank_lines.after(start, min(raw.size, start + _HEADER_BYTES))
        if end < 0:
            return -1, False
        header = raw.read(start, end)
        for match in _BOUNDARY.finditer(header):
            if len(boundaries) < _MAX_BOUNDARIES:
                boundaries.add((match[1] or match[2]).rstrip())
        start = end
        if not _MESSAGE.search(header) or _BASE64.search(header):
            return start, bool(_BASE64.search(header))
    return start, False


def _delimiter_lines(raw: Raw) -> Iterator[tuple[int, int, bytes]]:
    """Start, start of the next line, and text after the dashes, of each line that begins with two dashes."""
    overlap = _LONGEST_BOUNDARY + 8
    for base in range(0, raw.size, _WINDOW_BYTES):
        low = max(0, base - overlap)
        end = min(raw.size, base + _WINDOW_BYTES)
        window = raw.read(low, end)
        for match in _DELIMITER.finditer(window):
            cut_off = match.end() == len(window) and end < raw.size  # the next window shows it whole
            seen = low + match.end() < base
            if not cut_off and not seen:
                newline = window.find(b"\n", match.end())
                yield low + match.start() + 1, (low + newline + 1 if newline >= 0 else end), match[1]
