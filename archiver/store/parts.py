"""Finds the large parts of a message by scanning for its delimiter lines. A wrong guess costs space, never bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from archiver.store import base64_lines
from archiver.store.base64_lines import Lines
from archiver.store.content import Memory, Raw, pieces

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
    """A stretch of the message that is stored as a part; `lines` tells how it is encoded again, None: it is kept as it is."""

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
    in_memory = isinstance(raw, Memory)
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
    start, base64 = _read_header(raw, 0, boundaries)
    found = 0
    for at, after, text in _delimiter_lines(raw):
        line = text.rstrip(b" \t")
        closing = line.endswith(b"--") and line[:-2] in boundaries
        if (line not in boundaries and not closing) or at < start:
            continue
        found += 1
        if found > _MAX_PARTS:  # nobody writes that many: what follows is one stretch
            break
        if start >= 0:
            yield _Body(start, max(start, _before_line_end(raw, start, at)), base64)
        start, base64 = (-1, False) if closing else _read_header(raw, after, boundaries)
    if start >= 0:
        yield _Body(start, raw.size, base64)


def _before_line_end(raw: Raw, start: int, at: int) -> int:
    """The line end before a delimiter belongs to the delimiter (RFC 2046, 5.1.1)."""
    before = raw.read(max(start, at - 2), at)
    return at - (2 if before.endswith(b"\r\n") else 1 if before.endswith(b"\n") else 0)


def _read_header(raw: Raw, start: int, boundaries: set[bytes]) -> tuple[int, bool]:
    """Where the body begins (-1: there is none), and whether it is base64. Learns the boundaries that the header declares."""
    for _ in range(_MAX_NESTED_MESSAGES):
        head = raw.read(start, min(raw.size, start + _SHORT_HEADER_BYTES))
        if head[:1] == b"\n" or head[:2] == b"\r\n":
            return start + head.index(b"\n") + 1, False
        found = _END_OF_HEADER.search(head)
        if found is None:
            head = raw.read(start, min(raw.size, start + _HEADER_BYTES))
            found = _END_OF_HEADER.search(head)
        if found is None:
            return -1, False
        header = head[: found.end()]
        for match in _BOUNDARY.finditer(header):
            if len(boundaries) < _MAX_BOUNDARIES:
                boundaries.add((match[1] or match[2]).rstrip())
        start += found.end()
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
