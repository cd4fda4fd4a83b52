"""One hash for all variants of a mail: fetched by IMAP, read from an mbox, received by a journal, or rewritten by a program.

It omits what programs add to their own copy (line ends, the postmark, `>From ` quoting, empty lines at the end, and some header
fields), and the fields that servers add on the way: two copies of one mail travel on different ways. Everything else counts.
"""

import hashlib
import re

from archiver.mail import limits

_IN_TRANSIT = (
    rb"received(?:-spf)?|return-path|delivered-to|envelope-to|authentication-results"
    rb"|arc-(?:seal|message-signature|authentication-results)"
)
_VOLATILE = (
    rb"(?=[sSxXcClLdDrReEaA])(?i:"  # checked by their initials first, because many fields have another
    rb"x-(?:original-to|envelope-to|received|ms-exchange-[^:\n]*+|spam-[^:\n]*+|status|keywords|uidl?|imap(?:base)?|mozilla-[^:\n]*+|account-key|gmail-labels|gm-[^:\n]*+|gmail-fetch-info"
    rb"|evolution[^:\n]*+|kmail-[^:\n]*+|balsa-[^:\n]*+|label|folder|from-line|offlineimap(?:-[^:\n]*+)?|tuid|dovecot-[^:\n]*+"
    rb"|claws-[^:\n]*+|sylpheed-[^:\n]*+|pm-[^:\n]*+|apple-[^:\n]*+|uniform-type-identifier|universally-unique-identifier"
    rb"|mail-created-date|remote-attachments)|xref|status|content-length|lines|delivery-status|" + _IN_TRANSIT + rb")[ \t]*:"
)
_ANY_VOLATILE = re.compile(rb"\n" + _VOLATILE)
_FIRST_VOLATILE = re.compile(_VOLATILE)
_VOLATILE_FIELD = re.compile(rb"(?<=\n)" + _VOLATILE + rb"[^\n]*(?:\n[ \t][^\n]*)*\n?")
_QUOTED_FROM = re.compile(rb"(?m)^>{1,8}(?=From )")
_QUOTED_FROM_BYTES = 13  # of the longest form that is searched for
_NEWLINES = b"\n" * (64 << 10)
_BARE_CR = re.compile(rb"\r(?!\n)")
_BLANK_LINE = re.compile(rb"\n\n")  # a pattern finds these two in half the time of `find`
_QUOTED_ANYWHERE = re.compile(rb">From ")


class Canonical:
    """Computes the hash incrementally: feed the message in pieces of any size, then call `digest` once."""

    __slots__ = ("_cr", "_hash", "_header", "_mid_line", "_newlines", "_tail")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._header: bytearray | None = bytearray()
        self._cr = False  # the last piece ended with CR, which may be the first half of a CRLF
        self._mid_line = False  # the next piece continues a line that was already hashed
        self._tail = b""  # the start of a line that is too short to decide whether it is a quoted `From `
        self._newlines = 0  # not yet hashed, because they may be the last

    def feed(self, piece: bytes) -> None:
        if not piece:
            return
        if self._cr:
            piece = b"\r" + piece
        self._cr = piece.endswith(b"\r")
        if self._cr:
            piece = piece[:-1]
        self._feed_lines(piece.replace(b"\r\n", b"\n"))

    def digest(self) -> bytes:
        if self._cr:
            self._cr = False
            self._feed_lines(b"\r")
        if self._header is not None:
            self._end_header(len(self._header))
        self._hash_text(self._tail)
        self._tail = b""
        return self._hash.digest()

    def _feed_lines(self, piece: bytes) -> None:
        if self._header is None:
            self._body(piece)
            return
        looked_at = max(0, len(self._header) - 1)
        self._header += piece
        end = 0 if self._header.startswith(b"\n") else self._header.find(b"\n\n", looked_at, limits.HEADER_BYTES) + 1
        if end or self._header.startswith(b"\n"):
            self._end_header(end)
        elif len(self._header) >= limits.HEADER_BYTES:
            self._end_header(limits.HEADER_BYTES)

    def _end_header(self, end: int) -> None:
        assert self._header is not None
        header, rest = bytes(self._header[:end]), bytes(self._header[end:])
        self._header = None
        self._hash_text(_lasting(header))
        self._mid_line = not header.endswith(b"\n") and bool(header)
        self._body(rest)

    def _body(self, piece: bytes) -> None:
        text = self._tail + piece
        last = text.rfind(b"\n") + 1
        held = b"" if len(text) - last >= _QUOTED_FROM_BYTES or (last == 0 and self._mid_line) else text[last:]
        if held:
            text = text[:last]
        self._tail = held
        if b">From " in text:
            start = text.find(b"\n") + 1 if self._mid_line else 0
            text = text[:start] + _QUOTED_FROM.sub(b"", text[start:]) if start or not self._mid_line else text
        if text:
            self._mid_line = not text.endswith(b"\n")
        self._hash_text(text)

    def _hash_text(self, text: bytes) -> None:
        content = text.rstrip(b"\n")
        if content:
            self._hash_newlines()
            self._hash.update(content)
        self._newlines += len(text) - len(content)

    def _hash_newlines(self) -> None:
        while self._newlines:
            part = _NEWLINES[: self._newlines]
            self._hash.update(part)
            self._newlines -= len(part)


def _lasting(header: bytes) -> bytes:
    """The header fields that count."""
    if header.startswith((b"From ", b">From ")):
        header = header.partition(b"\n")[2]
    lines = b"\n" + header
    return header if _ANY_VOLATILE.search(lines) is None else _VOLATILE_FIELD.sub(b"", lines)[1:]


def canonical_sha256(raw: bytes) -> bytes:
    """The hash of a message that is in memory."""
    text = raw
    if b"\r" in raw:
        text = raw.replace(b"\r\n", b"\n") if _BARE_CR.search(raw) else raw.replace(b"\r", b"")
    blank = _BLANK_LINE.search(text, 0, limits.HEADER_BYTES)
    if blank is not None and not text.startswith(b"\n") and _QUOTED_ANYWHERE.search(text, blank.end()) is None:
        return _plain_sha256(text, blank.start() + 1)
    canonical = Canonical()
    canonical.feed(raw)
    return canonical.digest()


def _plain_sha256(text: bytes, end: int) -> bytes:
    """The same hash as `Canonical`, in one step, for a message without lines that need special treatment. Its header ends
    here."""
    start = text.find(b"\n") + 1 if text.startswith((b"From ", b">From ")) else 0
    is_volatile = _ANY_VOLATILE.search(text, max(0, start - 1), end) or (not start and _FIRST_VOLATILE.match(text, 0, end))
    if not is_volatile:
        return hashlib.sha256(text[start:].rstrip(b"\n")).digest()
    header, body = _lasting(text[:end]), text[end:].rstrip(b"\n")
    digest = hashlib.sha256(header if body else header.rstrip(b"\n"))
    digest.update(body)
    return digest.digest()
