"""Finds the MIME structure of a message: its parts as ranges of bytes, without recursion.

A single scanner of our own instead of a fast parser with a tolerant fallback: two parsers disagree on exactly the mail that
matters here. It searches for boundaries with `bytes.find`, once per level, so that its cost is the size times the (limited)
depth."""

import re
from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.encodings import decode_transfer
from archiver.mail.formats.smime import smime_content
from archiver.mail.header.fields import Block, Field, split_block
from archiver.mail.header.parameters import NOTHING, Parametrised, parse_parameters
from archiver.mail.header.words import field_bytes

_GUESSED_BOUNDARY = re.compile(rb"(?:\A|\n)--([^\s-][^\r\n]{0,200}?)[ \t]*\r?\n(?:Content-|\r?\n)", re.IGNORECASE)
_NESTED = frozenset({"message/rfc822", "message/global", "message/news"})
_SMIME = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_DESCRIBING = frozenset({"content-type", "content-disposition", "content-transfer-encoding", "content-id"})
_HEAD_BYTES = 512
_IDENTITY = frozenset({"", "7bit", "8bit", "binary"})


@dataclass(slots=True)
class MimePart:
    """One node of the structure. Its content is buffer[start:end], still encoded."""

    path: tuple[int, ...]  # position, counted from 1 on each level; () is the root
    parent: int  # index of the parent, -1 for the root
    content_type: Parametrised
    disposition: Parametrised
    encoding: str
    content_id: str
    fields: list[Field]
    buffer: bytes
    start: int
    end: int
    is_container: bool  # a multipart, or a parsed message: its content is in its children

    @property
    def is_message(self) -> bool:
        """A nested message."""
        return self.content_type.value in _NESTED

    @property
    def filename(self) -> str:
        return self.disposition.get("filename") or self.content_type.get("name")

    def head(self) -> bytes:
        """The first bytes of the content, enough to recognise its type."""
        return decode_transfer(self.buffer[self.start : min(self.end, self.start + _HEAD_BYTES)], self.encoding, Defects())

    @property
    def is_plain(self) -> bool:
        """Not encoded."""
        return self.encoding in _IDENTITY

    @property
    def size(self) -> int:
        """The size of the encoded content, an upper bound for the decoded one."""
        return self.end - self.start

    def content(self, defects: Defects) -> bytes:
        return decode_transfer(self.buffer[self.start : self.end], self.encoding, defects)


@dataclass(slots=True)
class _Place:
    """The range of a part that is still to be read."""

    buffer: bytes
    start: int
    end: int
    path: tuple[int, ...]
    parent: int
    default_type: str
    is_message: bool = False  # a whole message, with a header block of its own


class _Scanner:
    def __init__(self, raw: bytes, root: Block, defects: Defects, budget: DecodeBudget) -> None:
        self.parts: list[MimePart] = []
        self._defects = defects
        self._budget = budget
        self._todo: list[_Place] = []
        self._bare_cr = root.bare_cr
        buffer = raw.replace(b"\r", b"\n") if root.bare_cr else raw
        self._add(_Place(buffer, root.body_start, len(buffer), (), -1, "text/plain"), root)

    def scan(self) -> list[MimePart]:
        while self._todo:
            place = self._todo.pop()
            limit = limits.HEADER_BYTES if place.is_message else limits.PART_HEADER_BYTES
            block = split_block(place.buffer, self._defects, start=place.start, end=place.end, limit=limit)
            place.start = block.body_start
            self._add(place, block)
        return self.parts

    def _add(self, place: _Place, block: Block) -> None:
        """Adds a part whose header was read, and queues its children."""
        content_type, disposition, encoding, content_id = _describe(block, self._defects)
        if "/" not in content_type.value:
            if content_type.value:
                self._defects.add("content_type_broken", content_type.value)
            content_type = Parametrised(place.default_type, content_type.parameters)
        children = self._children(place, content_type, encoding)
        self.parts.append(
            MimePart(
                place.path,
                place.parent,
                content_type,
                disposition,
                encoding,
                content_id,
                block.fields,
                place.buffer,
                place.start,
                place.end,
                bool(children),
            )
        )
        self._todo.extend(reversed(children))

    def _children(self, place: _Place, content_type: Parametrised, encoding: str) -> list[_Place]:
        kind = content_type.value
        is_multipart = kind.startswith("multipart/")
        if not is_multipart and kind not in _NESTED and kind not in _SMIME:
            return []
        if len(place.path) >= limits.DEPTH:
            self._defects.add("too_deep")
            return []
        buffer, start, end = place.buffer, place.start, place.end
        if encoding not in _IDENTITY:  # forbidden for both (RFC 2045, section 6.4), but it occurs
            if not self._budget.take(end - start, self._defects):
                return []
            buffer = decode_transfer(buffer[start:end], encoding, self._defects)
            start, end = 0, len(buffer)
        index = len(self.parts)
        if kind in _SMIME:
            inner = smime_content(buffer[start:end], self._budget, self._defects)
            return [_Place(inner, 0, len(inner), (*place.path, 1), index, "text/plain")] if inner else []
        if not is_multipart:
            return [_Place(buffer, start, end, (*place.path, 1), index, "text/plain", is_message=True)]
        default = "message/rfc822" if kind == "multipart/digest" else "text/plain"
        spans = self._spans(buffer, start, end, content_type.get("boundary"))
        return [_Place(buffer, a, b, (*place.path, n), index, default) for n, (a, b) in enumerate(spans, start=1)]

    def _spans(self, buffer: bytes, start: int, end: int, boundary: str) -> list[tuple[int, int]]:
        delimiter = boundary.encode("utf-8", "surrogateescape")[: limits.BOUNDARY_CHARS].rstrip()
        left = limits.PARTS - len(self.parts) - len(self._todo)
        spans = split_multipart(buffer, start, end, delimiter, left) if delimiter else []
        if not spans:
            self._defects.add("boundary_not_found" if delimiter else "boundary_missing")
            guess = _GUESSED_BOUNDARY.search(buffer, start, min(end, start + 65536))
            spans = split_multipart(buffer, start, end, guess[1], left) if guess else []
        if len(spans) >= left:
            self._defects.add("too_many_parts")
        return spans


def split_multipart(buffer: bytes, start: int, end: int, boundary: bytes, limit: int) -> list[tuple[int, int]]:
    """The ranges of the parts between delimiter lines, and of the epilogue after the last one (RFC 2046, section 5.1.1)."""
    dashes = b"--" + boundary
    spans: list[tuple[int, int]] = []
    opened: int | None = None  # where the current part starts
    closed = False
    at = line_end = start
    while len(spans) < limit:
        at = buffer.find(dashes, at, end)
        if at < 0:
            break
        after = at + len(dashes)
        if line_end < after:  # else it is still that of this line, which may be all there is
            line_end = buffer.find(b"\n", after, end)
            line_end = end if line_end < 0 else line_end
        rest = buffer[after : min(line_end, after + 80)].strip()
        if (at > start and buffer[at - 1] not in b"\n\r") or rest not in (b"", b"--"):
            at = after
            continue
        if opened is not None and not (closed and not buffer[opened:at].strip()):
            spans.append((opened, _before_line_end(buffer, opened, at)))
        closed = rest == b"--"
        opened = at = min(line_end + 1, end)
    if opened is not None and (not closed or buffer[opened : opened + 65536].strip()):
        spans.append((opened, end))
    return spans


def _before_line_end(buffer: bytes, start: int, at: int) -> int:
    """The line end before a delimiter belongs to the delimiter."""
    if at > start and buffer[at - 1] == 10:
        at -= 1
    if at > start and buffer[at - 1] == 13:
        at -= 1
    return at


def _describe(block: Block, defects: Defects) -> tuple[Parametrised, Parametrised, str, str]:
    values = {name: value for name, value in reversed(block.fields) if name in _DESCRIBING}  # the first of several counts
    content_type = parse_parameters(values["content-type"], defects) if "content-type" in values else NOTHING
    disposition = parse_parameters(values["content-disposition"], defects) if "content-disposition" in values else NOTHING
    encoding = content_id = ""
    if "content-transfer-encoding" in values:
        given = values["content-transfer-encoding"].partition(";")[0].strip(" \t\r\n\"'")
        encoding = field_bytes(given).decode("ascii", "replace").lower()
    if "content-id" in values:
        content_id = field_bytes(values["content-id"].strip(" \t<>\r\n")).decode("utf-8", "replace")[:998]
    return content_type, disposition, encoding, content_id


def scan_parts(raw: bytes, root: Block, defects: Defects, budget: DecodeBudget) -> list[MimePart]:
    """All parts in document order, the root first. Never raises."""
    return _Scanner(raw, root, defects, budget).scan()
