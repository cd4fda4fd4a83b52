"""One message with its expected values, and the pieces that messages are made of."""

from __future__ import annotations

import base64
import quopri
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

HEAD = (
    ("From", "Ann Archer <ann@lantern.example>"),
    ("To", "Bob Berg <bob@partner.example>"),
    ("Date", "Mon, 2 Mar 2020 10:00:00 +0000"),
)


@dataclass(frozen=True, slots=True)
class MailCase:
    name: str
    shows: str
    raw: bytes
    expected: dict[str, Any] = field(default_factory=dict)
    """As in the .json files of tests/corpus."""


def message(
    name: str, fields: Sequence[tuple[str, str | bytes]], body: bytes | str = b"", *, head: bool = True, eol: bytes = b"\r\n"
) -> bytes:
    """Fields that are given replace the usual ones of the same name."""
    given = {field.lower() for field, _ in fields}
    usual = [(key, value) for key, value in (*HEAD, ("Message-ID", f"<{name}@lantern.example>")) if key.lower() not in given]
    lines = [_bytes(key) + b": " + _bytes(value) for key, value in ([*usual, *fields] if head else fields)]
    return eol.join([*lines, b"", b""]) + _bytes(body).replace(b"\r\n", b"\n").replace(b"\n", eol)


def multipart(kind: str, boundary: str, parts: Sequence[bytes], *, more: str = "") -> tuple[tuple[str, str], bytes]:
    """The field and the body."""
    opened = b"".join(b"--%b\n%b\n" % (boundary.encode(), part) for part in parts)
    return ("Content-Type", f'multipart/{kind}; boundary="{boundary}"{more}'), opened + b"--%b--\n" % boundary.encode()


def part(content: bytes | str, *fields: tuple[str, str]) -> bytes:
    return b"".join(_bytes(key) + b": " + _bytes(value) + b"\n" for key, value in fields) + b"\n" + _bytes(content)


def encoded(data: bytes, encoding: str) -> bytes:
    """As the transfer encoding of this name writes it."""
    if encoding == "base64":
        return base64.encodebytes(data)
    if encoding == "quoted-printable":
        return quopri.encodestring(data)
    return data


def encoded_word(data: bytes, charset: str, encoding: str) -> str:
    if encoding == "b":
        return f"=?{charset}?b?{base64.b64encode(data).decode()}?="
    return f"=?{charset}?q?{''.join(f'={byte:02X}' for byte in data)}?="


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
