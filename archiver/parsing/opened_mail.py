"""What a page shows of a message: text, safe HTML and files. Pure; runs in a parsing child."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.formats.calendar import Event
from archiver.mail.header.fields import split_block
from archiver.mail.header.route import AuthenticityCheck, Hop, parse_results, read_route
from archiver.mail.header.words import unstructured
from archiver.mail.message import Message, read_message
from archiver.mail.text.links import DoubtfulLink, find_doubtful_links
from archiver.mail.text.marks import Mark
from archiver.mail.text.safe_html import safe_html

_TEXT_CHARS = 1_000_000
_EMBEDDED_BYTES = 24 << 20
_EVENTS = 20
_FIELDS, _FIELD_CHARS = 1_000, 4_000
_OTHER_FORM = "\n[Only in the other form of this text:]\n"
_MARK = "x-archiver-converted-from"
_CONVERTED = frozenset({"PST", "MSG"})
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Types that browsers show without running anything."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    number: int
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    inline: bool
    content_id: str


@dataclass(frozen=True, slots=True)
class MailContent:
    opened: bool
    """False: the message can't be opened here; `reason` says why, and its bytes can be downloaded."""
    text: str = ""
    text_is_cut: bool = False
    html: str = ""
    """Safe to show in a sandboxed frame; images from other servers are removed."""
    blocked_images: int = 0
    links: tuple[str, ...] = ()
    """The real targets of the links in the HTML."""
    doubtful_links: tuple[DoubtfulLink, ...] = ()
    attachments: tuple[FileInfo, ...] = ()
    events: tuple[Event, ...] = ()
    """Invitations and other entries of calendars."""
    is_encrypted: bool = False
    is_signed: bool = False
    converted_from: str = ""
    """The kind of file that the message was built from (PST, MSG), as its header says; any mail can say so."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadableHeader:
    """The header of a message for people: fields decoded, the path of the mail, and what servers say about its authenticity."""

    fields: tuple[tuple[str, str], ...]
    hops: tuple[Hop, ...]
    checks: tuple[AuthenticityCheck, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class File:
    name: str
    content_type: str
    sha256: bytes
    data: bytes


def content_of(raw: bytes, files_at: str) -> MailContent:
    """`files_at` is the URL prefix of the images inside the message, which are loaded by number."""
    message = read_message(raw)
    numbers = {file.content_id.strip("<>"): number for number, file in enumerate(message.attachments) if file.content_id}
    shown = safe_html(message.html, lambda cid: f"{files_at}/{numbers[cid]}" if cid in numbers else None)
    text = shown_text(message)
    return MailContent(
        opened=True,
        text=text[:_TEXT_CHARS],
        text_is_cut=len(text) > _TEXT_CHARS,
        html=shown.html,
        blocked_images=shown.blocked_remote,
        links=shown.links,
        doubtful_links=find_doubtful_links(shown.html, _domains(message)),
        events=message.events[:_EVENTS],
        attachments=_files(message),
        is_encrypted=message.flags.encrypted,
        is_signed=message.flags.signed,
        converted_from=_converted_from(message),
    )


def header_of(raw: bytes) -> ReadableHeader:
    found = split_block(raw, Defects()).fields
    shown = tuple(
        (name, unstructured(value[: limits.VALUE_CHARS], Defects())[:_FIELD_CHARS]) for name, value in found[:_FIELDS]
    )
    received = [value for name, value in found if name.lower() == "received"]
    results = [value for name, value in found if name.lower() == "authentication-results"]
    checks = tuple(check for value in results[:10] for check in parse_results(value))
    is_cut = len(found) > _FIELDS or any(len(text) == _FIELD_CHARS for _, text in shown)
    return ReadableHeader(shown, read_route(received), checks, is_cut)


def _domains(message: Message) -> frozenset[str]:
    """Of the people whom the mail names: a link that imitates one of them is doubtful."""
    people = (*message.headers.from_, *message.headers.reply_to, *message.headers.recipients[:50])
    return frozenset(one.domain for one in people if "." in one.domain)


def _converted_from(message: Message) -> str:
    marks = (value.split()[0].upper() for name, value in message.fields if name == _MARK and value.strip())
    return next((kind for kind in marks if kind in _CONVERTED), "")


def shown_text(message: Message) -> str:
    """With a separator before the passages that are only in the hidden form of the text."""
    pieces, at = [], 0
    for span in message.spans:
        if span.mark is Mark.ALTERNATIVE:
            pieces += [message.text[at : span.start], _OTHER_FORM]
            at = span.start
    return "".join([*pieces, message.text[at:]])


def frame_of(raw: bytes, *, keep_remote: bool) -> str:
    """The HTML for a sandboxed frame that can fetch nothing from us: images of the mail itself are embedded."""
    message = read_message(raw)
    images = {file.content_id.strip("<>"): file for file in message.attachments if file.content_id}
    left = _EMBEDDED_BYTES

    def embedded(cid: str) -> str | None:
        nonlocal left
        file = images.get(cid)
        if file is None or file.content_type not in IMAGE_TYPES or file.size_bytes > left:
            return None
        left -= file.size_bytes
        return f"data:{file.content_type};base64,{base64.b64encode(file.content).decode()}"

    return safe_html(message.html, embedded, keep_remote=keep_remote).html


def file_of(raw: bytes, number: int) -> File | None:
    files = read_message(raw).attachments
    if not 0 <= number < len(files):
        return None
    file = files[number]
    return File(file.name or f"attachment-{number}", file.content_type, file.sha256, file.content)


def _files(message: Message) -> tuple[FileInfo, ...]:
    return tuple(
        FileInfo(number, file.name, file.content_type, file.size_bytes, file.sha256.hex(), file.inline, file.content_id)
        for number, file in enumerate(message.attachments)
    )
