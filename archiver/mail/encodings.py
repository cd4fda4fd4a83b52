"""Decodes Content-Transfer-Encoding, with whatever garbage the content contains."""

import binascii
import re

from archiver.mail.defects import Defects
from archiver.mail.formats.embedded import uudecode, ydecode

_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")
_PADDING = re.compile(rb"=[=\s]*")
_PROSE = re.compile(rb"[a-zA-Z]{2}[ ,.!?][ \r\n]*+[a-zA-Z]")
_IDENTITY = frozenset({"", "7bit", "8bit", "binary", "none", "7-bit", "8-bit", "ascii", "utf-8"})


def decode_transfer(body: bytes, encoding: str, defects: Defects) -> bytes:
    """The content of a part. Never raises."""
    if encoding in _IDENTITY:
        return body
    if encoding == "base64":
        return decode_base64(body, defects)
    if encoding in ("quoted-printable", "quotedprintable", "qp"):
        return binascii.a2b_qp(body)
    if encoding in ("x-uuencode", "uuencode", "x-uue", "uue"):
        files = uudecode(body)
        if files.found:
            return files.found[0].content
        defects.add("uuencode_broken")
        return body
    if encoding in ("x-yencode", "yenc", "x-yenc"):
        files = ydecode(body)
        return files.found[0].content if files.found else body
    defects.add("unknown_encoding", encoding)
    return body


def decode_base64(body: bytes, defects: Defects) -> bytes:
    padding = _PADDING.search(body)
    if padding is None or padding.end() == len(body):
        return _decode_run(body, defects)
    # Padding in the middle: several encoded runs in sequence, or plain text appended by a mailing list or a virus scanner.
    defects.add("base64_goes_on_after_its_end")
    decoded, at = [], 0
    for end in _PADDING.finditer(body):
        run = body[at : end.end()]
        if at and _PROSE.search(run[:4096]):
            break
        decoded.append(_decode_run(run, defects))
        at = end.end()
    rest = body[at:]
    decoded.append(b"\n" + rest if _PROSE.search(rest[:4096]) else _decode_run(rest, defects))
    return b"".join(decoded)


def _decode_run(run: bytes, defects: Defects) -> bytes:
    try:
        return binascii.a2b_base64(run)
    except binascii.Error:
        clean = _NOT_BASE64.sub(b"", run)
        defects.add("base64_broken")
    clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
    return binascii.a2b_base64(clean + b"=" * (-len(clean) % 4))
