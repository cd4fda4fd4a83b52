"""Splits off the header block of a message or part: where it ends, and its fields, undecoded.

Fields are text, because text is faster to split than bytes. Bytes outside ASCII are kept as surrogates (PEP 383) until
`words.header_text` reads them.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects

Field = tuple[str, str]  # lower-case name, unfolded value

BLANK = " \t\n\r\x0b\x0c"  # what `bytes.strip` removes; `str.strip` removes more

_LOOK_AHEAD = 50
_ODD_STARTS = b"\xef\r\n>F"  # of a byte order mark, a line end, a postmark
_END = re.compile(rb"\n\r?\n")
_FOLD = re.compile(r"\n(?=[ \t])")
_FIELD = re.compile(r"([!-9;-~]+)[ \t]*:(.*)")
_NAME = re.compile(r"([!-9;-~]+)[ \t]*\Z")
_KNOWN = re.compile(
    r"(?ai)(?:received|return-path|delivered-to|from|sender|to|cc|bcc|reply-to|subject|date|message-id|references|in-reply-to"
    r"|mime-version|content-[a-z]+(?:-[a-z]+)*|list-[a-z]+|x-[a-z0-9-]+|dkim-signature|errors-to|priority|importance"
    r"|status)[ \t]*:"
)


class FieldNames(dict[str, str]):
    """Maps the text before a colon to the name of a field, computed once per spelling. A KeyError if it is not a name.

    With `wanted`, all other names become "".
    """

    def __init__(self, wanted: Container[str] | None = None) -> None:
        self._wanted = wanted

    def __missing__(self, given: str) -> str:
        found = _NAME.match(given)
        if found is None:
            raise KeyError
        name = found[1].lower()
        if self._wanted is not None and name not in self._wanted:
            name = ""
        if len(self) < 4096 and len(given) < 80:
            self[given] = name
        return name


ALL_NAMES = FieldNames()


@dataclass(slots=True)
class Block:
    """A header block and the offset at which the body starts."""

    fields: list[Field]
    body_start: int
    bare_cr: bool = False  # lines end with CR alone


def split_block(
    raw: bytes,
    defects: Defects,
    *,
    start: int = 0,
    end: int = -1,
    limit: int = limits.HEADER_BYTES,
    names: FieldNames = ALL_NAMES,
) -> Block:
    """Reads the header block of raw[start:end], at most `limit` bytes of it. Never raises.

    Fields that are not in `names` may be omitted.
    """
    end = len(raw) if end < 0 else end
    if start >= end:
        return Block([], end)
    if raw[start] in _ODD_STARTS:
        start = _after_leading_lines(raw, start, end, defects)
        if raw.startswith((b"\n", b"\r\n"), start, end):  # no field at all, then the body
            return Block([], start + (1 if raw[start] == 10 else 2))
    found = _END.search(raw, start, min(end, start + limit))
    bare_cr = False
    if found is None:
        block_end = body_start = min(end, start + limit)
        if end - start > limit:
            defects.add("header_too_large")
        elif raw.find(b"\n", start, end) < 0 <= raw.find(b"\r", start, end):
            bare_cr = True
            blank = raw.find(b"\r\r", start, block_end)
            block_end, body_start = (blank, blank + 2) if blank >= 0 else (block_end, body_start)
    else:
        block_end, body_start = found.start(), found.end()
    block = raw[start:block_end]
    fields, junk_at = _fields(_one_line_each(block, bare_cr), defects, names)
    if junk_at is not None:
        # The empty line before the body is missing: what is not a header field belongs to the body.
        body_start = start + _line_offset(block, junk_at, b"\r" if bare_cr else b"\n")
    return Block(fields, body_start, bare_cr)


def _after_leading_lines(raw: bytes, start: int, end: int, defects: Defects) -> int:
    """Skips everything before the first field: an mbox postmark, empty lines, a byte order mark."""
    if raw.startswith(b"\xef\xbb\xbf", start, end):
        start += 3
    if raw.startswith((b"\n", b"\r\n"), start, end):
        after = re.compile(rb"[\r\n]+").match(raw, start, min(end, start + 1024))
        if after is not None and _KNOWN.match(_text(raw[after.end() : min(end, after.end() + limits.PART_HEADER_BYTES)])):
            defects.add("blank_line_before_header")
            start = after.end()
    while raw.startswith((b"From ", b">From "), start, end):
        line_end = raw.find(b"\n", start, end)
        if line_end < 0:
            break
        start = line_end + 1
    return start


def _one_line_each(block: bytes, bare_cr: bool) -> str:
    if bare_cr:
        block = block.replace(b"\r", b"\n")
    elif b"\r" in block:
        block = block.replace(b"\r\n", b"\n").rstrip(b"\r")
    # RFC 5322, section 2.2.3: unfolding removes the line end and keeps the white space.
    return _FOLD.sub("", _text(block))


def _text(header: bytes) -> str:
    return header.decode("ascii", "surrogateescape")


def _fields(block: str, defects: Defects, names: FieldNames) -> tuple[list[Field], int | None]:
    """The fields, and the number of the first unfolded line that is not a field but text."""
    lines = block.split("\n")
    if len(lines) > limits.FIELDS:
        return _odd_fields(lines, defects)
    pieces = [line.partition(":") for line in lines]
    try:  # "" is not a name
        return [(name, value) for given, colon, value in pieces if (name := names[given if colon else ""])], None
    except KeyError:
        return _odd_fields(lines, defects)


def _odd_fields(lines: list[str], defects: Defects) -> tuple[list[Field], int | None]:
    fields: list[Field] = []
    if len(lines) > limits.FIELDS:
        defects.add("too_many_fields")
        del lines[limits.FIELDS :]
    known_until = 0
    for number, line in enumerate(lines):
        field = _FIELD.match(line)
        if field is not None:
            fields.append((field[1].lower(), field[2]))
        elif line:
            if number >= known_until:
                known_until = _next_known(lines, number)
            if number >= known_until:
                defects.add("no_blank_line_after_header" if fields else "no_header")
                return fields, number
            defects.add("junk_in_header")
    return fields, None


def _next_known(lines: list[str], number: int) -> int:
    """The number of the next line that is certainly a header field; 0 if there is none."""
    for later in range(number + 1, min(len(lines), number + _LOOK_AHEAD)):
        if _KNOWN.match(lines[later]):
            return later
    return 0


def _line_offset(block: bytes, number: int, line_end: bytes) -> int:
    """The offset of the `number`-th unfolded line in the original block."""
    offset = 0
    while True:
        if number == 0:
            return offset
        offset = block.find(line_end, offset) + 1
        if block[offset : offset + 1] not in (b" ", b"\t"):
            number -= 1
