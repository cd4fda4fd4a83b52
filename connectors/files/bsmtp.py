"""Batched SMTP (RFC 2442): the commands of many deliveries in one file, each message between `DATA` and a line with a dot.

The message is what DATA brought, with the dots at the beginning of lines undone. The envelope around it is not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.files.mbox import CHUNK_BYTES, MessageSpan
from connectors.files.open_file import OpenFile
from connectors.mboxrd import change_lines

_DATA = re.compile(rb"\nDATA[ \t]*\r?\n", re.IGNORECASE)
_END = re.compile(rb"\n\.\r?\n")
_DOT = re.compile(rb"^\.", re.MULTILINE)
_OVERLAP = 256
_FIRST_BYTES = 16 << 10


class Bsmtp:
    def __init__(self, file: OpenFile) -> None:
        self.file = file

    def spans(self, start: int = 0) -> Iterator[MessageSpan]:
        """From `start`, which is 0 or the `next` of another span."""
        at = start
        while (data := self._search(_DATA, max(0, at - 1))) is not None:
            end = self._search(_END, data[1] - 1)
            if end is None:
                yield MessageSpan(at, data[1], self.file.size, self.file.size, is_cut=True)
                return
            yield MessageSpan(at, data[1], end[0] + 1, end[1])
            at = end[1]

    def content(self, span: MessageSpan) -> bytes:
        return _undo_dots(self.file.read(span.start, span.end))

    def pieces(self, span: MessageSpan) -> Iterator[bytes]:
        yield from change_lines(self.file.pieces(span.start, span.end), _undo_dots)

    def _search(self, pattern: re.Pattern[bytes], start: int) -> tuple[int, int] | None:
        """Where it begins and ends. Nothing that is searched for is longer than the overlap."""
        step = _FIRST_BYTES
        while start < self.file.size:
            data = self.file.read(start, start + step)
            step = min(step * 2, CHUNK_BYTES)  # most messages are small, and none is read twice for that
            found = pattern.search(data)
            if found:
                return start + found.start(), start + found.end()
            if start + len(data) >= self.file.size:
                return None
            start += len(data) - _OVERLAP
        return None


def _undo_dots(text: bytes) -> bytes:
    return _DOT.sub(b"", text)
