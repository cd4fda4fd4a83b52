"""Builds a message from the properties of an item, piece by piece, whatever its size.

The message is ours: the original header is kept as it is where there is one, bodies and attachments are kept byte for byte, and
what holds them together is written here. The same item gives the same bytes: boundaries are hashes of its properties, and there
is no clock. A boundary begins with `=_`, which neither base64 nor quoted-printable can contain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from archiver.outlook import properties as tags
from archiver.outlook.bodies import OutlookBody, bodies_of
from archiver.outlook.encoding import CRLF, base64_lines, content_type, parameter, quoted_printable
from archiver.outlook.groupware import groupware_of
from archiver.outlook.headers import header_of
from archiver.outlook.items import DEPTH, OutlookAttachment, OutlookFileBroken, OutlookItem

MARK = "X-Archiver-Converted-From"
_MESSAGES = 2_000
_BYTES = 4 << 30
_HIDDEN_IN_HTML = 4
_REFERENCES = frozenset({2, 3, 4, 7})
_SIGNED = "IPM.NOTE.SMIME.MULTIPARTSIGNED"


@dataclass(slots=True)
class Conversion:
    """One message with everything in it: limits, and what could not be kept."""

    origin: str
    """The kind of file, as in the header of the message."""
    problems: list[str] = field(default_factory=list)
    messages: int = 0
    size: int = 0

    def build(self, item: OutlookItem) -> Iterator[bytes]:
        kind = item.properties.text(tags.MESSAGE_CLASS) or "unknown"
        mark = "".join(char for char in kind if char.isascii() and char.isprintable())[:100]
        for piece in self._message(item, f"{MARK}: {self.origin} ({mark})\r\n".encode(), 0):
            self.size += len(piece)
            if self.size > _BYTES:
                raise OutlookFileBroken(f"it would be larger than {_BYTES >> 30} GiB")
            yield piece

    def _message(self, item: OutlookItem, mark: bytes, depth: int) -> Iterator[bytes]:
        self.messages += 1
        if self.messages > _MESSAGES or depth > DEPTH:
            raise OutlookFileBroken(f"more than {_MESSAGES:,} messages in one, or nested more than {DEPTH} deep")
        header, bodies = header_of(item) + mark, bodies_of(item.properties)
        seed = _seed(header, bodies)
        yield header
        attachments = self._attachments(item)
        if (signed := _signed(item, attachments)) is not None:
            yield b"".join(signed.pieces()).replace(b"\r\n", b"\n").replace(b"\n", CRLF)
            return
        yield b"MIME-Version: 1.0\r\n"
        yield from self._content(item, bodies, attachments, seed, depth)

    def _attachments(self, item: OutlookItem) -> Sequence[OutlookAttachment]:
        try:
            return item.attachments()
        except OutlookFileBroken as error:
            self.problems.append(str(error))
            return ()

    def _content(
        self,
        item: OutlookItem,
        bodies: Sequence[OutlookBody],
        attachments: Sequence[OutlookAttachment],
        seed: bytes,
        depth: int,
    ) -> Iterator[bytes]:
        html = bodies[-1].content.lower() if bodies and bodies[-1].subtype == "html" else b""
        inline = [one for one in attachments if html and _is_inline(one, html)]
        files = [one for one in attachments if one not in inline]
        groupware = groupware_of(item, seed.hex()[:32])
        if not files and groupware is None:
            yield from self._text(bodies, inline, seed, depth)
            return
        boundary = _boundary(seed, "mixed")
        yield _multipart("mixed", boundary)
        if bodies:
            yield _delimiter(boundary)
            yield from self._text(bodies, inline, seed, depth)
        if groupware is not None:
            yield _delimiter(boundary) + _groupware_part(*groupware)
        for one in files:
            yield _delimiter(boundary)
            yield from self._file(one, "attachment", depth)
        yield b"--" + boundary + b"--\r\n"

    def _text(
        self, bodies: Sequence[OutlookBody], inline: Sequence[OutlookAttachment], seed: bytes, depth: int
    ) -> Iterator[bytes]:
        if len(bodies) <= 1:
            body = bodies[0] if bodies else OutlookBody("plain", "us-ascii", b"")
            yield from self._related(body, inline, seed, depth)
            return
        boundary = _boundary(seed, "alternative")
        yield _multipart("alternative", boundary)
        for body in bodies[:-1]:
            yield _delimiter(boundary) + _body_part(body)
        yield _delimiter(boundary)
        yield from self._related(bodies[-1], inline, seed, depth)
        yield b"--" + boundary + b"--\r\n"

    def _related(self, body: OutlookBody, inline: Sequence[OutlookAttachment], seed: bytes, depth: int) -> Iterator[bytes]:
        if not inline:
            yield _body_part(body)
            return
        boundary = _boundary(seed, "related")
        yield _multipart("related", boundary) + _delimiter(boundary) + _body_part(body)
        for one in inline:
            yield _delimiter(boundary)
            yield from self._file(one, "inline", depth)
        yield b"--" + boundary + b"--\r\n"

    def _file(self, one: OutlookAttachment, disposition: str, depth: int) -> Iterator[bytes]:
        item = one.item()
        if item is not None:
            name = parameter("filename", _name(one)) if _name(one) else b""
            yield b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n"
            yield b"Content-Disposition: " + disposition.encode() + name + CRLF + CRLF
            yield from self._message(item, b"", depth + 1)
            yield CRLF
            return
        if one.properties.number(tags.METHOD) in _REFERENCES:
            yield _reference_part(one)
            return
        yield _file_header(one, disposition)
        try:
            yield from base64_lines(one.pieces())
        except OutlookFileBroken as error:  # what was read of it is kept
            self.problems.append(f"{_name(one)[:100] or 'without a name'}: {error}")


def _seed(header: bytes, bodies: Sequence[OutlookBody]) -> bytes:
    digest = hashlib.sha256(header)
    for body in bodies:
        digest.update(body.subtype.encode() + body.content)
    return digest.digest()


def _boundary(seed: bytes, part: str) -> bytes:
    return b"=_" + hashlib.sha256(seed + part.encode()).hexdigest()[:32].encode()


def _multipart(subtype: str, boundary: bytes) -> bytes:
    return b"Content-Type: multipart/" + subtype.encode() + b';\r\n boundary="' + boundary + b'"\r\n\r\n'


def _delimiter(boundary: bytes) -> bytes:
    return b"--" + boundary + CRLF


def _body_part(body: OutlookBody) -> bytes:
    if body.subtype == "rtf":
        head = b'Content-Type: application/rtf;\r\n name="body.rtf"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
        return head + b"".join(base64_lines([body.content]))
    head = f"Content-Type: text/{body.subtype}; charset={body.charset}\r\n".encode()
    return head + b"Content-Transfer-Encoding: quoted-printable\r\n\r\n" + quoted_printable(body.content)


def _groupware_part(kind: str, content: bytes) -> bytes:
    name = "item.ics" if kind == "text/calendar" else "item.vcf"
    head = f'Content-Type: {kind}; charset=utf-8; name="{name}"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n'
    return head.encode() + quoted_printable(content)


def _name(one: OutlookAttachment) -> str:
    values = one.properties
    return values.text(tags.LONG_NAME) or values.text(tags.SHORT_NAME) or values.text(tags.DISPLAY_NAME)


def _file_header(one: OutlookAttachment, disposition: str) -> bytes:
    values, name = one.properties, _name(one)
    kind = content_type(values.text(tags.MIME_TYPE)).encode()
    lines = [b"Content-Type: " + kind + (parameter("name", name) if name else b"")]
    lines.append(b"Content-Transfer-Encoding: base64")
    lines.append(b"Content-Disposition: " + disposition.encode() + (parameter("filename", name) if name else b""))
    content_id = "".join(values.text(tags.CONTENT_ID).strip("<> ").split())
    if content_id and content_id.isascii() and content_id.isprintable():
        lines.append(f"Content-ID: <{content_id[:500]}>".encode())
    return CRLF.join(lines) + CRLF + CRLF


def _reference_part(one: OutlookAttachment) -> bytes:
    """The file was never in the item: only where it was is known."""
    path = one.properties.text(tags.LONG_PATH) or one.properties.text(tags.PATH) or _name(one)
    head = b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n"
    head += b"Content-Disposition: attachment" + parameter("filename", f"{_name(one) or 'link'}.txt") + CRLF + CRLF
    return head + quoted_printable(f"Attached as a link: {path}\n".encode("utf-8", "replace"))


def _is_inline(one: OutlookAttachment, html: bytes) -> bool:
    content_id = one.properties.text(tags.CONTENT_ID).strip("<> ").lower().encode("utf-8", "replace")
    return bool(content_id) and b"cid:" + content_id in html


def _signed(item: OutlookItem, attachments: Sequence[OutlookAttachment]) -> OutlookAttachment | None:
    """The one attachment of a signed message is the message itself, as it was signed."""
    if not item.properties.text(tags.MESSAGE_CLASS).upper().startswith(_SIGNED) or len(attachments) != 1:
        return None
    first = next(attachments[0].pieces(), b"")[:200].lstrip().lower()
    return attachments[0] if first.startswith(b"content-type:") else None
