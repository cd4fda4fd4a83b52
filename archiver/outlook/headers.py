"""The header of a message: the original one as it is, and from the properties what it lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from archiver.outlook import properties as tags
from archiver.outlook.encoding import CRLF, date, field, phrase
from archiver.outlook.items import BCC, CC, KIND_BITS, TO, OutlookItem
from archiver.outlook.properties import PropertySet

_FIELD = re.compile(rb"([!-9;-~]{1,200})[ \t]*:")
_MICROSOFT = re.compile(rb"Microsoft Mail Internet Headers", re.IGNORECASE)
_REPLACED = frozenset({b"mime-version", b"content-type", b"content-transfer-encoding", b"x-archiver-converted-from"})
_LISTS = {TO: "To", CC: "Cc", BCC: "Bcc"}
_ODD = b"X-Archiver-Unreadable-Header: "
_ADDRESS = re.compile(r"[^\s<>()\",;:@]+@[^\s<>()\",;:@]+")
_REFERENCES_CHARS = 8000


def header_of(item: OutlookItem) -> bytes:
    """Without the fields that describe the body."""
    original = [*_original(item.properties)]
    present = {found[1].lower() for line in original if (found := _FIELD.match(line))}
    missing = {kind for kind, name in _LISTS.items() if name.lower().encode() not in present}
    rest = [line for name, line in _from_properties(item, missing) if name.lower().encode() not in present]
    return b"".join([*original, *rest])


def _original(values: PropertySet) -> Iterator[bytes]:
    """The fields that the message was transported with, each with its continuation lines, as bytes if they are known."""
    text = values.raw(tags.TRANSPORT_HEADERS)
    if values.is_unicode(tags.TRANSPORT_HEADERS):
        text = text.decode("utf-16-le", "replace").encode("utf-8", "replace")
    lines = text.rstrip(b"\0").replace(b"\0", b" ").replace(b"\r\n", b"\n").replace(b"\r", b"\n").lstrip(b"\n").split(b"\n")
    for line in _unfolded(lines):
        found = _FIELD.match(line)
        if found is None:
            if not _MICROSOFT.match(line):
                yield _ODD + line.strip() + CRLF
        elif found[1].lower() not in _REPLACED:
            yield line


def _unfolded(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Ends at the first empty line: what may follow are the headers of parts, which we write ourselves."""
    held: list[bytes] = []
    for line in lines:
        if not line.strip():
            break
        if held and line[:1] not in b" \t":
            yield b"".join(held)
            held = []
        held.append(line + CRLF)
    if held:
        yield b"".join(held)


def _from_properties(item: OutlookItem, lists: Collection[int]) -> Iterator[tuple[str, bytes]]:
    values = item.properties
    yield from _people(values, item.recipients(lists))
    subject = subject_of(values)
    if subject:
        yield "Subject", field("Subject", subject)
    at = next((found for tag in _DATES if (found := values.time(tag))), None)
    if at is not None:
        yield "Date", field("Date", date(at))
    for name, tag in (("Message-ID", tags.MESSAGE_ID), ("In-Reply-To", tags.IN_REPLY_TO), ("References", tags.REFERENCES)):
        if ids := values.text(tag).strip()[:_REFERENCES_CHARS]:
            yield name, name.encode() + b": " + b"\r\n ".join(ids.encode("utf-8", "replace").split()) + CRLF


_DATES = (tags.SUBMITTED_AT, tags.DELIVERED_AT, tags.CREATED_AT, tags.CHANGED_AT)


def subject_of(values: PropertySet) -> str:
    """Its first two characters may say how long its prefix (`Re: `) is."""
    text = values.text(tags.SUBJECT)
    return text[2:] if text.startswith("\x01") else text


def _people(values: PropertySet, recipients: Sequence[PropertySet]) -> Iterator[tuple[str, bytes]]:
    author = _mailbox(values, tags.ON_BEHALF_NAME, tags.ON_BEHALF_SMTP, tags.ON_BEHALF_ADDRESS)
    sender = _mailbox(values, tags.SENDER_NAME, tags.SENDER_SMTP, tags.SENDER_ADDRESS)
    if author or sender:
        yield "From", b"From: " + (author or sender) + CRLF
    if author and sender and sender != author:
        yield "Sender", b"Sender: " + sender + CRLF
    for kind, name in _LISTS.items():
        found = [_recipient(one) for one in recipients if one.number(tags.RECIPIENT_TYPE) & KIND_BITS == kind]
        addresses = list(dict.fromkeys(one for one in found if one))
        if addresses:
            yield name, name.encode() + b": " + b",\r\n ".join(addresses) + CRLF


def _recipient(values: PropertySet) -> bytes:
    return _mailbox(values, tags.DISPLAY_NAME, tags.SMTP_ADDRESS, tags.ADDRESS)


def _mailbox(values: PropertySet, name: int, smtp: int, other: int) -> bytes:
    """An address inside Exchange (X.500) is not one of the Internet: it stays visible as a comment."""
    shown = values.text(name).strip().strip("'\"")
    address = next((text for tag in (smtp, other, name) if _ADDRESS.fullmatch(text := values.text(tag).strip())), "")
    if address:
        plain = b"<" + address.encode("utf-8", "replace") + b">"
        return plain if not shown or shown.lower() == address.lower() else phrase(shown) + b" " + plain
    inner = values.text(other).strip()
    if not shown and not inner:
        return b""
    return phrase(f"{shown} ({inner})" if shown and inner and shown != inner else shown or inner) + b" <>"
