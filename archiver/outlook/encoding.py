"""Values in MIME: header fields, parameters, encoded bodies. The same input gives the same bytes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import quote

CRLF = b"\r\n"
_WORD_BYTES = 42
_PARAMETER_CHARS = 60
_BREAKS = re.compile(r"[\r\n\0]+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")
_ATOMS = re.compile(r"[A-Za-z0-9 !#$%&'*+/=?^_`{|}~-]+")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE)
_LINE_BYTES = 900


def field(name: str, value: str) -> bytes:
    """A field with any text: encoded words if it has other characters than those of ASCII (RFC 2047)."""
    return name.encode() + b": " + unstructured(_BREAKS.sub(" ", value).strip()) + CRLF


def unstructured(value: str) -> bytes:
    value = _CONTROLS.sub(" ", value)
    if value.isascii() and "=?" not in value and len(value) < _LINE_BYTES:
        return value.encode()
    return (CRLF + b" ").join(_encoded_words(value))


def _encoded_words(value: str) -> Iterator[bytes]:
    held = b""
    for char in value:
        raw = char.encode("utf-8", "replace")
        if len(held) + len(raw) > _WORD_BYTES:
            yield b"=?utf-8?B?" + base64.b64encode(held) + b"?="
            held = b""
        held += raw
    yield b"=?utf-8?B?" + base64.b64encode(held) + b"?="


def phrase(name: str) -> bytes:
    """A display name (RFC 5322, 3.2.5)."""
    name = _CONTROLS.sub(" ", name).strip()
    if not name.isascii() or "=?" in name or len(name) > _LINE_BYTES // 2:
        return (CRLF + b" ").join(_encoded_words(name))
    if _ATOMS.fullmatch(name):
        return name.encode()
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return b'"' + escaped.encode() + b'"'


def date(at: datetime) -> str:
    return format_datetime(at.replace(microsecond=0))


def parameter(name: str, value: str) -> bytes:
    """A parameter on a line of its own: quoted, or encoded and continued (RFC 2231)."""
    value = _CONTROLS.sub(" ", value)
    if value.isascii() and len(value) <= _PARAMETER_CHARS:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f';\r\n {name}="{escaped}"'.encode()
    pieces = [*_quoted_pieces(value)]
    if len(pieces) == 1:
        return f";\r\n {name}*=utf-8''{pieces[0]}".encode()
    return b"".join(_continued(name, number, piece) for number, piece in enumerate(pieces))


def _continued(name: str, number: int, piece: str) -> bytes:
    charset = "utf-8''" if number == 0 else ""
    return f";\r\n {name}*{number}*={charset}{piece}".encode()


def _quoted_pieces(value: str) -> Iterator[str]:
    held = ""
    for char in value:
        quoted = quote(char, safe="", errors="replace")
        if len(held) + len(quoted) > _PARAMETER_CHARS:
            yield held
            held = ""
        held += quoted
    yield held


def content_type(value: str) -> str:
    """A type that can stand in a header, or the general one."""
    value = value.strip().lower()
    is_fit = _TYPE.fullmatch(value) and not value.startswith("multipart/")
    return value if is_fit else "application/octet-stream"


def base64_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each piece but the last must be a multiple of 57 bytes long."""
    for piece in pieces:
        yield base64.encodebytes(piece).replace(b"\n", CRLF)


def quoted_printable(data: bytes) -> bytes:
    """Text with line ends of any kind."""
    plain = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    encoded = binascii.b2a_qp(plain, istext=True, quotetabs=False)
    return encoded.replace(b"\n", CRLF) + (b"" if encoded.endswith(b"\n") or not encoded else CRLF)
