"""Splits an mbox, in one pass and with little memory, whatever its size.

The file says where its messages begin in two ways: a postmark (see postmark.py), and, in the mboxcl variants, a Content-Length,
which is believed when it leads exactly to a postmark or to the end of the file. How lines that begin with `From ` were quoted
in the bodies is found out from the first messages:

    mboxrd   `>From ` means `From `, `>>From ` means `>From `, and so on
    mboxo    `>From ` means `From `; nothing else was changed
    mboxcl2  nothing was quoted

A file in which `>>From ` never occurs reads the same as mboxo and as mboxrd. One in which it does is taken for mboxrd, as all
newer programs write it. One with more bare than quoted `From ` lines in its bodies (with lengths: with any) was written without
quoting: nothing is changed. What a file is can also be said (`--kind`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from connectors.base import SPOOL_BYTES
from connectors.files.header import header_of
from connectors.files.opened import PIECE_BYTES, OpenFile
from connectors.files.postmark import LINE_BYTES, is_postmark

_CHUNK_BYTES = 4 << 20
_PROBE_BYTES = LINE_BYTES + 200
_SAMPLE_BYTES = 8 << 20
_LENGTH_WITHIN = 16 << 10
_LENGTH = re.compile(rb"\nContent-Length:[ \t]*(\d{1,15})[ \t]*\r?\n")
_TIMED = re.compile(rb"From [^\n]{0,1000}?\d:\d\d")
_QUOTED = re.compile(rb"\n>(?=>*From )")
_DEEP = re.compile(rb"\n>>+From ")
_BOUNDARY = re.compile(rb'boundary[ \t]*=[ \t]*"?([^"\r\n;]{1,200})', re.IGNORECASE)


class Quoting(Enum):
    NONE = "none"
    ONE = "one"
    ALL = "all"

    def undone(self, text: bytes) -> bytes:
        """Of text that begins at the beginning of a line."""
        if self is Quoting.NONE or b">From " not in text:
            return text
        if self is Quoting.ALL and b">>From " in text:
            return _QUOTED.sub(b"\n", b"\n" + text)[1:]
        return (b"\n" + text).replace(b"\n>From ", b"\nFrom ")[1:]


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    quoting: Quoting


VARIANTS = {
    "mboxo": Variant("mboxo", Quoting.ONE),
    "mboxrd": Variant("mboxrd", Quoting.ALL),
    "mboxcl": Variant("mboxcl", Quoting.ONE),
    "mboxcl2": Variant("mboxcl2", Quoting.NONE),
}


@dataclass(frozen=True, slots=True)
class Span:
    """One message in the file."""

    at: int
    """Where its postmark begins."""
    start: int
    end: int
    """Its bytes, without the empty line that belongs to the file."""
    next: int
    """Where the next postmark begins, or the file ends."""
    postmark: bytes
    by_length: bool
    is_cut: bool
    """The file ends before the message does."""


class Mbox:
    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self._base, self._data = 0, b""
        first = self._slice(0, _PROBE_BYTES)
        self._begin = len(first) - len(first.lstrip(b"\r\n"))
        if first[self._begin :].startswith(b"\xef\xbb\xbf"):
            self._begin += 3
        self._lenient = not is_postmark(first[self._begin :])
        self._has_lengths = b"\nContent-Length:" in self._slice(0, _CHUNK_BYTES)  # if none of the first has one, none has

    def spans(self, start: int = 0) -> Iterator[Span]:
        """From `start`, which is 0 or the `next` of another span."""
        at = start or self._begin
        while at < self.file.size:
            span = self._span(at)
            yield span
            at = span.next

    def content(self, span: Span, quoting: Quoting) -> bytes:
        """Of a message that fits into memory, as it was before it came into the file."""
        data = self._slice(span.start, span.end)
        if quoting is Quoting.NONE or b">From " not in data:
            return data
        end = len(header_of(data))
        return data[:end] + quoting.undone(data[end:])

    def pieces(self, span: Span, quoting: Quoting) -> Iterator[bytes]:
        """Of any message, in pieces."""
        if quoting is Quoting.NONE:
            yield from self.file.pieces(span.start, span.end)
            return
        header_end = span.start + len(header_of(self.file.read(span.start, span.start + PIECE_BYTES)[: span.end - span.start]))
        yield from self.file.pieces(span.start, header_end)
        held, in_line = b"", False
        for piece in self.file.pieces(header_end, span.end):
            text = held + piece
            cut = text.rfind(b"\n") + 1
            if not cut and len(text) > PIECE_BYTES:  # a line without end: nothing in it but its beginning can be a quoted one
                cut = len(text)
            yield _unquoted(text[:cut], quoting, in_line)
            if cut:
                in_line = not text[:cut].endswith(b"\n")
            held = text[cut:]
        yield _unquoted(held, quoting, in_line)

    def variant(self) -> Variant:
        """From the beginning of the file."""
        quoted = bare = lengths = count = 0
        is_deep = False
        for span in self.spans():
            if span.next > _SAMPLE_BYTES and count:
                break
            data = self._slice(span.start, min(span.end, span.start + SPOOL_BYTES))
            count += 1
            lengths += span.by_length
            bare += data.count(b"\nFrom ")
            quoted += data.count(b"\n>From ")
            is_deep = is_deep or b"\n>>From " in data or (b"\n>>>" in data and _DEEP.search(data) is not None)
        has_lengths = lengths * 2 > count
        if has_lengths and bare:
            return VARIANTS["mboxcl2"]
        if bare > quoted:
            return Variant("mbox", Quoting.NONE)
        if is_deep:
            return VARIANTS["mboxrd"]
        return VARIANTS["mboxcl" if has_lengths else "mboxo"]

    def _span(self, at: int) -> Span:
        line = self._slice(at, at + _PROBE_BYTES)
        end_of_line = line.find(b"\n")
        start = at + end_of_line + 1 if end_of_line >= 0 else self._line_end(at)
        postmark = line[: min(start - at, LINE_BYTES)]
        announced = self._announced(start)
        if announced is not None and announced <= self.file.size:
            following = self._following(announced)
            if following is not None:
                return Span(at, start, announced, following, postmark, by_length=True, is_cut=False)
        end = self._find_next(start)
        is_last = end >= self.file.size
        text_end = end - self._blank_line(start, end)
        is_cut = is_last and (bool(announced and announced > self.file.size) or self._is_torn(start, end))
        return Span(at, start, text_end, end, postmark, by_length=False, is_cut=is_cut)

    def _find_next(self, start: int) -> int:
        """The next postmark; the end of the file if there is none."""
        position = start - 1  # the message may be empty
        while (found := self._find(b"\nFrom ", position, start)) >= 0:
            at = found + 1 - self._base
            if not self._lenient and len(self._data) - at > _PROBE_BYTES and not _TIMED.match(self._data, at):
                position = found + 1  # by far the most lines of text that begin in this way
                continue
            before = self._slice(max(start - 1, found - 2), found + 1)
            after_blank = before.endswith((b"\n\n", b"\n\r\n")) or found == start - 1
            candidate = self._slice(found + 1, found + 1 + _PROBE_BYTES)
            if is_postmark(candidate, after_blank=after_blank, lenient=self._lenient):
                return found + 1
            position = found + 1
        return self.file.size

    def _announced(self, start: int) -> int | None:
        """Where the message ends by its Content-Length."""
        if not self._has_lengths:
            return None
        self._ensure(start, start + _LENGTH_WITHIN)
        low = start - 1 - self._base if start > self._base else 0
        high = start - self._base + _LENGTH_WITHIN
        if self._data.find(b"\nContent-Length:", low, high) < 0:
            return None
        found = _LENGTH.search(self._data, low, high)
        if not found:
            return None
        for blank in (b"\n\n", b"\n\r\n"):
            if self._data.find(blank, low, found.start() + 1) >= 0:
                return None  # not in the header of this message
        ends = [
            end + len(blank)
            for blank in (b"\n\n", b"\n\r\n")
            if (end := self._data.find(blank, found.end() - 1, found.end() + _LENGTH_WITHIN)) >= 0
        ]
        return self._base + min(ends) + int(found[1]) if ends else None

    def _following(self, announced: int) -> int | None:
        """Where the next postmark begins, if the announced end is a real one."""
        rest = self.file.read(announced, announced + _PROBE_BYTES)
        blank = 2 if rest.startswith(b"\r\n") else 1 if rest.startswith(b"\n") else 0
        is_end = announced + blank >= self.file.size or is_postmark(rest[blank:])
        return announced + blank if is_end else None

    def _blank_line(self, start: int, end: int) -> int:
        """The length of the empty line before the next postmark, which separates and belongs to no message."""
        tail = self._slice(max(start - 1, end - 3), end)
        return 2 if tail.endswith(b"\n\r\n") else 1 if tail.endswith(b"\n\n") else 0

    def _is_torn(self, start: int, end: int) -> bool:
        """The file ends in the middle of a line, and of a header, or of a multipart."""
        tail = self._slice(max(start, end - 65536), end)
        if not tail or tail.endswith(b"\n"):
            return False
        head = self._slice(start, min(end, start + PIECE_BYTES))
        header = header_of(head)
        if len(header) == len(head):
            return True
        boundary = _BOUNDARY.search(header)
        return boundary is not None and b"--" + boundary[1].rstrip() + b"--" not in tail

    def _line_end(self, at: int) -> int:
        found = self._find(b"\n", at)
        return found + 1 if found >= 0 else self.file.size

    # --- a window on the file

    def _ensure(self, start: int, end: int) -> None:
        end = min(end, self.file.size)
        if start >= self._base and end <= self._base + len(self._data):
            return
        end = max(end, start + _CHUNK_BYTES)
        if self._base <= start <= self._base + len(self._data):
            kept = self._data[start - self._base :]
            self._data = kept + self.file.read(start + len(kept), end)
        else:
            self._data = self.file.read(start, end)
        self._base = start

    def _slice(self, start: int, end: int) -> bytes:
        self._ensure(start, end)
        return self._data[start - self._base : end - self._base]

    def _find(self, wanted: bytes, start: int, keep: int | None = None) -> int:
        """`keep`: where the message began, which will be wanted as a whole, if it is not too large."""
        self._ensure(start, start + len(wanted))
        while True:
            found = self._data.find(wanted, start - self._base)
            if found >= 0:
                return self._base + found
            covered = self._base + len(self._data)
            if covered >= self.file.size:
                return -1
            start = max(start, covered - len(wanted) + 1)
            kept = keep if keep is not None and self._base <= keep and covered - keep <= SPOOL_BYTES else start
            self._ensure(kept, covered + _CHUNK_BYTES)


def _unquoted(text: bytes, quoting: Quoting, in_line: bool) -> bytes:
    if not in_line:
        return quoting.undone(text)
    end = text.find(b"\n") + 1
    return text[:end] + quoting.undone(text[end:]) if end else text
