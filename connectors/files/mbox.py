"""Splits an mbox, in one pass and with little memory, whatever its size.

The file says where its messages begin in three ways: a postmark (postmark.py); in the mboxcl variants a Content-Length, which
is believed when it leads exactly to a postmark or to the end of the file; and, in exports of Archiver, a length in the postmark
itself. How lines that begin with `From ` were quoted is found out from the whole file (survey.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from connectors import mboxrd
from connectors.base import SPOOL_BYTES
from connectors.files.header import header_of
from connectors.files.open_file import PIECE_BYTES, OpenFile
from connectors.files.postmark import LINE_BYTES, begins_patches, is_postmark
from connectors.files.variants import VARIANTS, MboxVariant, Quoting

CHUNK_BYTES = 4 << 20
_PROBE_BYTES = LINE_BYTES + 200
_LENGTH_WITHIN = 16 << 10
_LENGTH = re.compile(rb"\nContent-Length:[ \t]*(\d{1,15})[ \t]*\r?\n")
_LIKELY = re.compile(rb"From (?:-|[^\n]{0,1000}?\d:\d\d)")
_BOUNDARY = re.compile(rb'boundary[ \t]*=[ \t]*"?([^"\r\n;]{1,200})', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MessageSpan:
    """One message in a file of many."""

    at: int
    """Where its postmark begins."""
    start: int
    end: int
    """Its bytes, without the empty line that belongs to the file."""
    next: int
    """Where the next postmark begins, or the file ends."""
    postmark: bytes = b""
    by_length: bool = False
    """Its Content-Length is right."""
    is_cut: bool = False
    """The file ends before the message does."""
    is_exported: bool = False
    """Written by Archiver, and therefore quoted as mboxrd, whatever the rest of the file is."""


class Mbox:
    """Splits without knowing the variant; what is in the messages depends on it."""

    def __init__(self, file: OpenFile, variant: MboxVariant = VARIANTS["mbox"]) -> None:
        self.file = file
        self._variant = variant
        self._base, self._data = 0, b""
        first = self._slice(0, _PROBE_BYTES)
        self._begin = len(first) - len(first.lstrip(b"\r\n"))
        if first[self._begin :].startswith(b"\xef\xbb\xbf"):
            self._begin += 3
        first = first[self._begin :]
        self._lenient = not is_postmark(first)
        self._patches = begins_patches(first[: first.find(b"\n") + 1])
        self._has_lengths = b"\nContent-Length:" in self._slice(0, CHUNK_BYTES)  # if the first ones have none, none has

    def spans(self, start: int = 0) -> Iterator[MessageSpan]:
        """From `start`, which is 0 or the `next` of another span."""
        at = start or self._begin
        while at < self.file.size:
            span = self._span(at)
            yield span
            at = span.next

    def content(self, span: MessageSpan) -> bytes:
        """The content of a message that fits into memory, unquoted."""
        return self._quoting(span).undo(self._slice(span.start, span.end))

    def pieces(self, span: MessageSpan) -> Iterator[bytes]:
        """The content of any message, in pieces."""
        quoting = self._quoting(span)
        if quoting is Quoting.NONE:
            yield from self.file.pieces(span.start, span.end)
            return
        begin = span.start
        if quoting is Quoting.ONE:
            begin += len(header_of(self.file.read(span.start, span.start + PIECE_BYTES)[: span.end - span.start]))
            yield from self.file.pieces(span.start, begin)
        yield from mboxrd.change_lines(self.file.pieces(begin, span.end), quoting.undo_lines)

    def _quoting(self, span: MessageSpan) -> Quoting:
        return Quoting.ALL if span.is_exported else self._variant.quoting

    def stretches(self, span: MessageSpan, overlap: int) -> Iterator[tuple[int, bytes]]:
        """A message with the `overlap` bytes before each stretch, for counting, and where each begins in the file."""
        for at in range(span.start, span.end, CHUNK_BYTES):
            begin = max(0, at - overlap)
            yield begin, self._slice(begin, min(at + CHUNK_BYTES, span.end))

    def _span(self, at: int) -> MessageSpan:
        line = self._slice(at, at + _PROBE_BYTES)
        end_of_line = line.find(b"\n")
        start = at + end_of_line + 1 if end_of_line >= 0 else self._line_end(at)
        postmark = line[: min(start - at, LINE_BYTES)]
        exported = mboxrd.announced_bytes(postmark)
        if exported is not None:
            return self._exported_span(at, start, start + exported, postmark)
        announced = self._announced(start)
        if announced is not None and announced <= self.file.size:
            following = self._following(announced)
            if following is not None:
                return MessageSpan(at, start, announced, following, postmark, by_length=True)
        end = self._find_next(start)
        text_end = end - self._blank_line(start, end)
        # a length that does not lead to a postmark is wrong, unless those of the other messages are right
        is_late = self._variant.has_lengths and announced is not None and announced > self.file.size
        is_cut = end >= self.file.size and (is_late or self._is_torn(start, end))
        return MessageSpan(at, start, text_end, end, postmark, is_cut=is_cut)

    def _exported_span(self, at: int, start: int, end: int, postmark: bytes) -> MessageSpan:
        if end <= self.file.size:
            last = self.file.read(end - 1, end) if end > start else b""
            following = end + len(mboxrd.separator(last))
            if self.file.read(end, following + 5) in (mboxrd.separator(last), mboxrd.separator(last) + b"From "):
                return MessageSpan(at, start, end, following, postmark, is_exported=True)
        found = self._find_next(start)  # another program has changed the file, or it was cut off
        is_cut = found >= self.file.size and end > found
        return MessageSpan(at, start, found - self._blank_line(start, found), found, postmark, is_cut=is_cut, is_exported=True)

    def _find_next(self, start: int) -> int:
        """The next postmark; the end of the file if there is none."""
        position = start - 1  # the message may be empty
        while (found := self._find(b"\nFrom ", position, start)) >= 0:
            at = found + 1 - self._base
            if not self._lenient and len(self._data) - at > _PROBE_BYTES and not _LIKELY.match(self._data, at):
                position = found + 1  # excludes most lines of text that begin this way
                continue
            before = self._slice(max(start - 1, found - 2), found + 1)
            after_blank = before.endswith((b"\n\n", b"\n\r\n")) or found == start - 1
            candidate = self._slice(found + 1, found + 1 + _PROBE_BYTES)
            if is_postmark(candidate, after_blank=after_blank, lenient=self._lenient, patches=self._patches):
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
        is_end = announced + blank >= self.file.size or is_postmark(rest[blank:], patches=self._patches)
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
        end = max(end, start + CHUNK_BYTES)
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
            self._ensure(kept, covered + CHUNK_BYTES)
