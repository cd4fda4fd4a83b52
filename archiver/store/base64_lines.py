"""Base64 as mail writes it: lines of one length. Decodes only what encoding restores to the same bytes."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from archiver.store.content import PIECE_BYTES, Raw

_LONGEST_LINE = 1000
_EOLS = {"lf": b"\n", "crlf": b"\r\n"}


class Lines(NamedTuple):
    """How the text was wrapped. `length` 0: it was not."""

    length: int
    eol: str = "lf"

    @property
    def ending(self) -> bytes:
        return _EOLS[self.eol]

    @property
    def row(self) -> int:
        return self.length + len(self.ending)


def find_lines(raw: Raw, start: int, end: int) -> Lines | None:
    """The wrapping that the first line shows, if it can be one of base64."""
    head = raw.read(start, min(end, start + _LONGEST_LINE + 2))
    at = head.find(b"\n")
    if at < 0:
        return Lines(0) if end - start > _LONGEST_LINE else None
    eol = "crlf" if head[at - 1 : at] == b"\r" else "lf"
    length = at + 1 - len(_EOLS[eol])
    return Lines(length, eol) if length >= 4 and length % 4 == 0 else None


def decode(raw: Raw, start: int, end: int, lines: Lines) -> Iterator[bytes | None]:
    """The decoded bytes piece by piece; None, as the last piece, where encoding them would not give the text back."""
    step = max(1, PIECE_BYTES // lines.row) * lines.row if lines.length else PIECE_BYTES
    for at in range(start, end, step):
        text = raw.read(at, min(end, at + step))
        piece = _decode_rows(text, lines, last=at + step >= end)
        yield piece
        if piece is None:
            return


def _decode_rows(text: bytes, lines: Lines, *, last: bool) -> bytes | None:
    compact = text
    if lines.length:
        compact = text.replace(lines.ending, b"")
        full, rest = divmod(len(text), lines.row)
        # The last row has no line end, so that a text of whole rows only can't be its end.
        if (last and rest == 0) or rest > lines.length or len(compact) != full * lines.length + rest:
            return None
        for place, byte in enumerate(lines.ending):
            if text[lines.length + place :: lines.row].strip(bytes([byte])):
                return None
    try:
        plain = binascii.a2b_base64(compact, strict_mode=True)
    except binascii.Error:
        return None
    if not last and len(plain) * 4 != len(compact) * 3:
        return None
    return plain if b64encode(plain) == compact else None


def encode(plain: Iterable[bytes], lines: Lines) -> Iterator[bytes]:
    """The exact inverse of `decode`, for pieces of any length."""
    unit = lines.length // 4 * 3 if lines.length else 3
    pending = b""
    first = True
    for piece in plain:
        pending += piece
        whole = len(pending) // unit * unit
        if whole == len(pending):
            whole -= unit  # the last row is written at the end, without a line end
        if whole > 0:
            yield _encode_rows(pending[:whole], lines, first)
            first = False
            pending = pending[whole:]
    if pending:
        yield _encode_rows(pending, lines, first)


def _encode_rows(plain: bytes, lines: Lines, first: bool) -> bytes:
    text = b64encode(plain)
    if not lines.length:
        return text
    length = lines.length
    rows = lines.ending.join([text[at : at + length] for at in range(0, len(text), length)])
    return rows if first else lines.ending + rows


def encoded_length(plain_length: int, lines: Lines) -> int:
    length = -(-plain_length // 3) * 4
    return length + (-(-length // lines.length) - 1) * len(lines.ending) if lines.length and length else length
