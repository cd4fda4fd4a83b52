"""Files embedded in the text of old mail (uuencode, yEnc): found, decoded and removed from the text."""

import binascii
import re
from dataclasses import dataclass

from archiver.mail import limits

_UU_BEGIN = re.compile(rb"(?m)^begin(?:-base64)? [0-7]{3,4} ([^\r\n]{1,255})\r?\n")
_UU_END = re.compile(rb"(?m)^(?:end|====)[ \t]*\r?$")
_Y_BEGIN = re.compile(rb"(?m)^=ybegin [^\r\n]{0,500}?name=([^\r\n]{1,255})\r?\n")
_Y_PART = re.compile(rb"=ypart [^\r\n]*\r?\n")
_Y_END = re.compile(rb"(?m)^=yend[^\r\n]*\r?\n?")
_Y_ESCAPED = re.compile(rb"=(.)", re.DOTALL)
_FAILURES = 20
# A line of one character may announce 45 bytes: its trailing spaces were lost, or it is an attack.
_UU_TIMES, _UU_BYTES = 2, 64 << 10
_Y_SHIFT = bytes((n - 42) % 256 for n in range(256))


@dataclass(frozen=True, slots=True)
class EmbeddedFile:
    name: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class Embedded:
    """The files, and the text without them."""

    found: tuple[EmbeddedFile, ...]
    rest: bytes


def take_files(body: bytes) -> Embedded:
    """All files of a text part."""
    found: tuple[EmbeddedFile, ...] = ()
    if b"begin " in body or b"begin-base64 " in body:
        uu = uudecode(body)
        found, body = uu.found, uu.rest
    if b"=ybegin " in body:
        yenc = ydecode(body)
        found, body = found + yenc.found, yenc.rest
    return Embedded(found[: limits.EMBEDDED_FILES], body)


def uudecode(body: bytes) -> Embedded:
    found: list[EmbeddedFile] = []
    rest: list[bytes] = []
    at = failures = 0
    for begin in _UU_BEGIN.finditer(body):
        if begin.start() < at or len(found) >= limits.EMBEDDED_FILES or failures > _FAILURES:
            continue
        end = _UU_END.search(body, begin.end())
        if end is None:  # without an end line, later files have none either
            break
        encoded = body[begin.end() : end.start()]
        content = _base64(encoded) if begin[0].startswith(b"begin-base64") else _uu_lines(encoded)
        if content is None:
            failures += 1
            continue
        found.append(EmbeddedFile(begin[1].strip(), content))
        rest.append(body[at : begin.start()])
        at = end.end()
    return Embedded(tuple(found), b"".join([*rest, body[at:]]))


def _uu_lines(encoded: bytes) -> bytes | None:
    decoded: list[bytes] = []
    broken = size = 0
    limit = _UU_TIMES * len(encoded) + _UU_BYTES
    for line in encoded.split(b"\n"):
        line = line.rstrip(b"\r")
        if not line or line == b"`":
            continue
        before = len(decoded)
        try:
            decoded.append(binascii.a2b_uu(line))
        except binascii.Error:
            # Trailing garbage or lost spaces: read as many characters as the length byte announces.
            count = ((line[0] - 32) & 63) * 4 // 3 + 3
            try:
                decoded.append(binascii.a2b_uu(line[: count // 4 * 4 + 1]))
            except binascii.Error:
                broken += 1
        if broken > 3 and broken > len(decoded):
            return None  # prose that happens to start with "begin 644 "
        size += len(decoded[-1]) if len(decoded) > before else 0
        if size > limit:
            return None
    return b"".join(decoded) if decoded else None


def _base64(encoded: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(encoded)
    except binascii.Error:
        return None


def ydecode(body: bytes) -> Embedded:
    found: list[EmbeddedFile] = []
    rest: list[bytes] = []
    at = 0
    for begin in _Y_BEGIN.finditer(body):
        if begin.start() < at or len(found) >= limits.EMBEDDED_FILES:
            continue
        end = _Y_END.search(body, begin.end())
        if end is None:
            break
        part = _Y_PART.match(body, begin.end())
        encoded = body[part.end() if part else begin.end() : end.start()].replace(b"\r", b"").replace(b"\n", b"")
        unescaped = _Y_ESCAPED.sub(lambda escape: bytes([(escape[1][0] - 64) % 256]), encoded)
        found.append(EmbeddedFile(begin[1].strip(), unescaped.translate(_Y_SHIFT)))
        rest.append(body[at : begin.start()])
        at = end.end()
    return Embedded(tuple(found), b"".join([*rest, body[at:]]))
