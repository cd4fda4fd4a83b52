"""The row of a message, from its header alone. Whatever is wrong with the mail, there is a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from archiver.date_range import archivable
from archiver.mail import limits
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.mail.summary import Summary, summarise
from archiver.models.ids import message_uuid
from archiver.models.states import DateOrigin
from archiver.services.mail_readers import process_readers
from archiver.services.threads import thread_subject
from archiver.store.content import Memory, Spooled, StoredMessage

Bytes = Memory | Spooled | StoredMessage
Mail = tuple[Bytes, bytes, datetime | None]  # with their SHA-256, and the date of the server

_log = structlog.get_logger(__name__)
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_BYTES = limits.HEADER_BYTES + 4
_END = re.compile(rb"\n\r?\n")
_ODD_STARTS = (b"\xef", b"\r", b"\n", b">From ", b"From ")  # the first blank line may not be the end of the header then
_ORIGINS = {
    "date": DateOrigin.HEADER,
    "server": DateOrigin.SERVER,
    "received": DateOrigin.RECEIVED,
    "none": DateOrigin.NONE,
}


class MessageRows(NamedTuple):
    """What Postgres gets for one new message."""

    id: UUID
    sha256: bytes
    message: dict[str, Any]
    participants: list[dict[str, Any]]


def describe(raw: Bytes, sha256: bytes, received_at: datetime | None) -> MessageRows:
    return describe_all([(raw, sha256, received_at)])[0]


def describe_all(mails: Sequence[Mail]) -> list[MessageRows]:
    """The rows of each, in order. Headers are read in a child process; what can't be read there is archived like any other."""
    canonicals = [_canonical(raw) for raw, _, _ in mails]
    if not mails:
        return []
    receipts = [archivable(at) for _, _, at in mails]
    found = process_readers().summaries([_head(raw) for raw, _, _ in mails], receipts)
    return list(map(_rows, mails, map(_readable, mails, found), canonicals))


def _readable(mail: Mail, found: Summary | None) -> Summary:
    if found is not None:
        return found
    _log.error("header_unreadable", sha256=mail[1].hex())
    (nothing,) = summarise([b""], [archivable(mail[2])])
    return {**nothing, "defects": ("header_unreadable",)}


def _rows(mail: Mail, found: Summary, canonical: bytes) -> MessageRows:
    raw, sha256, given_at = mail
    message_id = message_uuid(sha256)
    row = {
        "id": message_id,
        "sha256": sha256.hex(),
        "canonical_sha256": canonical.hex(),
        "internet_message_id": found["internet_message_id"],
        "in_reply_to": found["in_reply_to"],
        "reference_ids": found["reference_ids"],
        "sent_at": found["sent_at"],
        "received_at": found["received_at"],
        "sort_at": found["sort_at"] or _NO_DATE,
        "date_origin": _ORIGINS[found["dated_by"]],
        "sender": found["sender"],
        "sender_name": found["sender_name"],
        "subject": found["subject"],
        "thread_subject": thread_subject(*found["thread_subject"]),
        "size_bytes": raw.size,
        "has_attachments": found["has_attachments"],
        "defects": (*found["defects"], *_defects(given_at)),
    }
    people = enumerate(found["people"])
    participants = [
        {"m": message_id, "p": place, "r": role, "a": address, "n": name} for place, (role, address, name) in people
    ]
    return MessageRows(message_id, sha256, row, participants)


def _defects(given_at: datetime | None) -> tuple[str, ...]:
    """Of the date that the server gave, which is kept in words where it can't be kept as a date."""
    if given_at is None or archivable(given_at) is not None:
        return ()
    return (f"server_date_out_of_range: {given_at.isoformat()}",)


def _head(raw: Bytes) -> bytes:
    """What the header is read from: no more of the body than has to be."""
    if isinstance(raw, Memory) and not raw.data.startswith(_ODD_STARTS):
        end = _END.search(raw.data, 0, _HEADER_BYTES)
        if end is not None:
            return raw.data[: end.end()]
    return raw.read(0, min(raw.size, _HEADER_BYTES))


def _canonical(raw: Bytes) -> bytes:
    if isinstance(raw, Memory):
        return canonical_sha256(raw.data)
    canonical = Canonical()
    for piece in raw.pieces():
        canonical.feed(piece)
    return canonical.digest()
