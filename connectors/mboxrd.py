"""mboxrd as Archiver writes it: one quoting rule for the whole message, and a postmark that says how long the message is.

Any mail program reads such a file. Archiver reads each message back byte for byte: the length says where it ends, whatever its
line ends are, and even if it has no header or no line end at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

_PIECE_BYTES = 1 << 20
_SENDER_CHARS = 300  # a postmark is recognised within 1,000 bytes
_QUOTABLE = re.compile(rb"^(?=>*From )", re.MULTILINE)
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
# The words of UUCP ("remote from HOST"), which readers of mbox skip at the end of a postmark.
_MARK = re.compile(rb" remote from archiver-mboxrd-(\d{1,15})\r?\n?\Z")


def postmark(sender: str, at: datetime, quoted_bytes: int) -> bytes:
    """The line before a message that takes `quoted_bytes` when it is quoted."""
    shown = re.sub(r"\s", "", sender)[:_SENDER_CHARS] or "MAILER-DAEMON"
    line = f"From {shown} {at:%a %b %d %H:%M:%S %Y} remote from archiver-mboxrd-{quoted_bytes}\n"
    return line.encode("ascii", "replace")


def announced_bytes(line: bytes) -> int | None:
    """What the postmark of an exported message says about its length; None for a line of any other program."""
    found = _MARK.search(line)
    return int(found[1]) if found else None


def separator(last: bytes) -> bytes:
    """What stands between a message that ends with the byte `last` and the next postmark: one empty line."""
    return b"\n" if last == b"\n" else b"\n\n"


def quote(text: bytes) -> bytes:
    """Of text that begins at the beginning of a line."""
    return _QUOTABLE.sub(b">", text) if b"From " in text else text


def unquote(text: bytes) -> bytes:
    return _QUOTED.sub(b"", text) if b">From " in text else text


def change_lines(pieces: Iterable[bytes], change: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Applies `change` to pieces that begin at the beginning of a line, whatever the pieces are that come in."""
    held, is_inside = b"", False
    for piece in pieces:
        text = held + piece
        cut = text.rfind(b"\n") + 1
        if not cut and len(text) > _PIECE_BYTES:  # a line without end: only its beginning matters
            cut = len(text)
        if cut:
            yield _changed(text[:cut], change, is_inside)
            is_inside = not text[:cut].endswith(b"\n")
        held = text[cut:]
    yield _changed(held, change, is_inside)


def _changed(text: bytes, change: Callable[[bytes], bytes], is_inside: bool) -> bytes:
    if not is_inside:
        return change(text)
    end = text.find(b"\n") + 1
    return text[:end] + change(text[end:]) if end else text
