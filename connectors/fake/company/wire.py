"""Serialises messages (RFC 5322, 2045 to 2047, 2231): small, fast, and able to be as odd as real ones."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import lru_cache
from urllib.parse import quote

from connectors.fake.company.people import Employee

_WORD_CHARS = 14
"""This many characters fit into an encoded word in any charset."""
_SPECIALS = frozenset('()<>[]:;@\\,."')


_HOURS = {"en": 1, "de": 1, "fr": 1, "es": 1, "ja": 9, "zh": 8, "ar": 4, "ru": 3, "tr": 3}
_ZONES = {language: timezone(timedelta(hours=hours)) for language, hours in _HOURS.items()}


@dataclass(frozen=True, slots=True)
class Entity:
    """A body with the headers that describe it."""

    headers: tuple[bytes, ...]
    content: bytes

    def __bytes__(self) -> bytes:
        return b"\r\n".join(self.headers) + b"\r\n\r\n" + self.content


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """The headers of a message."""

    sender: Employee
    to: tuple[Employee, ...]
    subject: str
    sent_at: datetime
    message_id: str
    cc: tuple[Employee, ...] = ()
    references: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    """Whole lines, in ASCII."""
    charset: str = "utf-8"
    raw_headers: bool = False
    """Raw eight-bit text in headers, as old programs write it."""


def words(text: str, charset: str = "utf-8", raw: bool = False) -> bytes:
    """Header text: plain if possible, otherwise as encoded words."""
    if text.isascii():
        return text.encode()
    try:
        encoded = text.encode(charset)
    except UnicodeEncodeError:
        charset, encoded = "utf-8", text.encode()
    if raw:
        return encoded
    pieces = (text[start : start + _WORD_CHARS].encode(charset) for start in range(0, len(text), _WORD_CHARS))
    return b"\r\n ".join(b"=?%s?B?%s?=" % (charset.encode(), base64.b64encode(piece)) for piece in pieces)


@lru_cache(maxsize=1024)
def mailbox(person: Employee, charset: str = "utf-8", raw: bool = False) -> bytes:
    name = words(person.name, charset, raw)
    if person.name.isascii() and _SPECIALS & set(person.name):
        name = b'"' + name + b'"'
    return b"%s <%s>" % (name, person.address.encode())


def message(envelope: HeaderSet, body: Entity) -> bytes:
    charset, raw = envelope.charset, envelope.raw_headers
    lines = [
        b"From: " + mailbox(envelope.sender, charset, raw),
        b"To: " + b",\r\n ".join(mailbox(person, charset, raw) for person in envelope.to),
        b"Subject: " + words(envelope.subject, charset, raw),
        b"Date: " + format_datetime(envelope.sent_at.astimezone(_ZONES[envelope.sender.language])).encode(),
        b"Message-ID: <%s>" % envelope.message_id.encode(),
    ]
    if envelope.cc:
        lines.append(b"Cc: " + b",\r\n ".join(mailbox(person, charset, raw) for person in envelope.cc))
    if envelope.references:
        lines.append(f"In-Reply-To: <{envelope.references[-1]}>".encode())
        lines.append(b"References: " + b"\r\n ".join(f"<{reference}>".encode() for reference in envelope.references))
    lines += [line.encode() for line in envelope.extra]
    lines.append(b"MIME-Version: 1.0")
    return b"\r\n".join(lines) + b"\r\n" + bytes(body)


def text(content: str, charset: str = "utf-8", encoding: str = "quoted-printable", kind: str = "plain") -> Entity:
    """Falls back to UTF-8 if the charset lacks a character, as mail programs do."""
    content = content.replace("\n", "\r\n")
    try:
        data = content.encode(charset)
    except UnicodeEncodeError:
        charset, encoding, data = "utf-8", "quoted-printable", content.encode()
    headers = (
        f"Content-Type: text/{kind}; charset={charset}".encode(),
        f"Content-Transfer-Encoding: {encoding}".encode(),
    )
    return Entity(headers, encode(data, encoding))


def encode(data: bytes, encoding: str) -> bytes:
    match encoding:
        case "base64":
            return base64.encodebytes(data).replace(b"\n", b"\r\n")
        case "quoted-printable":
            return binascii.b2a_qp(data, istext=True)
        case _:
            return data


def attachment(name: str, kind: str, data: bytes, content_id: str | None = None) -> Entity:
    """Inline if it has a content id, so that the HTML part can show it."""
    shown = f'filename="{name}"' if name.isascii() else f"filename*=utf-8''{quote(name)}"
    headers = [
        f"Content-Type: {kind}".encode(),
        f"Content-Disposition: {'inline' if content_id else 'attachment'}; {shown}".encode(),
        b"Content-Transfer-Encoding: base64",
    ]
    if content_id:
        headers.append(f"Content-ID: <{content_id}>".encode())
    return Entity(tuple(headers), encode(data, "base64"))


def multipart(kind: str, boundary: str, parts: Iterable[Entity], parameters: str = "") -> Entity:
    mark = boundary.encode()
    content = b"".join(b"--%s\r\n%s\r\n" % (mark, bytes(part)) for part in parts) + b"--%s--\r\n" % mark
    return Entity((f'Content-Type: multipart/{kind}; boundary="{boundary}"{parameters}'.encode(),), content)


def with_attachments(body: Entity, attachments: Sequence[Entity], boundary: str) -> Entity:
    return multipart("mixed", boundary, (body, *attachments)) if attachments else body
