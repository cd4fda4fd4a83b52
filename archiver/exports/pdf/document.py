"""What a PDF shows of a message, as values. Pure; runs in a confined child."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from archiver.exports.pdf.picture_size import picture_size
from archiver.mail.attachments import Attachment
from archiver.mail.header.addresses import Address
from archiver.mail.message import Message, read_message
from archiver.parsing.opened_mail import shown_text

_TEXT_CHARS = 400_000
"""About 200 pages: typst needs a gigabyte for a thousand."""
_LINES = 12_000
_FILES = 500
_PEOPLE = 200
_WORD_CHARS = 70
_LONG_WORD = re.compile(rf"\S{{{_WORD_CHARS}}}(?=\S)")
_LEADING = re.compile(r"^[ \t]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PICTURES = 40
_PICTURES_BYTES = 24 << 20
_PICTURE_PIXELS = 25_000_000
_SMALLEST_PIXELS = 2
_PAGE_POINTS = (480.0, 640.0)
_POINTS_PER_PIXEL = 0.75


def document_of(raw: bytes, about: dict[str, Any], *, has_pictures: bool) -> dict[str, Any]:
    """`about`: the entry of the message in the manifest."""
    message = read_message(raw)
    text = shown_text(message)
    lines = [_line(line) for line in _clean(text[:_TEXT_CHARS]).splitlines()[:_LINES]]
    notes = ["The text continues in the original message."] if len(text) > _TEXT_CHARS or len(lines) == _LINES else []
    pictures = list(_pictures(message)) if has_pictures else []
    if not has_pictures and any(file.inline for file in message.attachments):
        notes.append("The pictures of this message could not be shown.")
    if message.flags.encrypted:
        notes.append("This message is encrypted. Its content is shown as it is stored.")
    date = message.headers.date
    return {
        "subject": _clean(message.headers.subject) or "(no subject)",
        "at": None if date is None else [date.year, date.month, date.day, date.hour, date.minute, date.second],
        "fields": [[name, _break_words(_clean(value))] for name, value in _fields(message, about) if value],
        "lines": lines,
        "pictures": pictures,
        "files": [_file(file) for file in message.attachments[:_FILES]],
        "notes": notes,
        "sha256": about["sha256"],
    }


def _fields(message: Message, about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    headers = message.headers
    yield "From", _people(headers.from_)
    yield "To", _people(headers.to)
    yield "Cc", _people(headers.cc)
    yield "Bcc", _people(headers.bcc)
    yield "Date", f"{headers.date:%Y-%m-%d %H:%M:%S} UTC" if headers.date else "none in the message"
    yield "Message-ID", headers.message_id
    places = (f"{copy['mailbox']} {copy['folder'] or ''}".strip() for copy in about["copies"][:_PEOPLE])
    yield "Stored in", "; ".join(dict.fromkeys(places))
    yield "Archive id", about["id"]


def _people(people: tuple[Address, ...]) -> str:
    named = ", ".join(map(str, people[:_PEOPLE]))
    return f"{named}, and {len(people) - _PEOPLE} more" if len(people) > _PEOPLE else named


def _file(file: Attachment) -> dict[str, str]:
    about = f"{file.content_type}, {file.size_bytes:,} bytes"
    return {"name": _break_words(_clean(file.name)) or "(no name)", "about": about, "sha256": file.sha256.hex()}


def _clean(text: str) -> str:
    return _CONTROLS.sub(" ", text.encode("utf-8", "replace").decode())


def _line(line: str) -> str:
    """Indented as it was, and with a place to break where a word is longer than a line."""
    line = _LEADING.sub(lambda found: "\u00a0" * min(len(found[0].expandtabs()), 40), line)
    return _break_words(line)


def _break_words(text: str) -> str:
    return _LONG_WORD.sub("\\g<0>\u200b", text) if len(text) > _WORD_CHARS else text


def _pictures(message: Message) -> Iterator[dict[str, Any]]:
    """Inline pictures. Wrapped in SVG, because that is the only way to hand bytes over as a string."""
    left, count = _PICTURES_BYTES, 0
    for file in message.attachments:
        if not file.inline or file.size_bytes > left or count >= _PICTURES:
            continue
        size = picture_size(file.content, file.content_type)
        if size is None or min(size) < _SMALLEST_PIXELS or size[0] * size[1] > _PICTURE_PIXELS:
            continue
        left, count = left - file.size_bytes, count + 1
        yield {"svg": _svg(file, *size), "width": _width(*size)}


def _svg(file: Attachment, width: int, height: int) -> str:
    """`content_type` is one of those that picture_size knows."""
    data = base64.b64encode(file.content).decode()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f'<image width="{width}" height="{height}" href="data:{file.content_type};base64,{data}"/></svg>'
    )


def _width(width: int, height: int) -> float:
    """In points: as large as on a screen, and no larger than a page."""
    wide, high = _PAGE_POINTS
    return min(width * _POINTS_PER_PIXEL, wide, high * width / height)
