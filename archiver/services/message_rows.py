"""The row of a message, from its header alone. Whatever is wrong with the mail, there is a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from archiver.date_range import archivable
from archiver.mail import limits
from archiver.mail.addresses import Address
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.mail.dates import choose_date, sort_date
from archiver.mail.headers import Headers, read_headers
from archiver.models.ids import message_uuid
from archiver.models.states import DateOrigin, ParticipantRole
from archiver.services.threads import subject_key
from archiver.store.content import Memory, Spooled, StoredMessage

Bytes = Memory | Spooled | StoredMessage
Mail = tuple[Bytes, bytes, datetime | None]  # with their SHA-256, and the date of the server

_log = structlog.get_logger(__name__)
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_BYTES = limits.HEADER_BYTES + 4
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
    """The rows of each, in order.

    One step for all of them, then the next: the code of a step stays in the processor's cache, which saves a fifth of the time.
    """
    canonicals = [_canonical(raw) for raw, _, _ in mails]
    headers = [_headers(raw, sha256) for raw, sha256, _ in mails]
    receipts = [
        read.first_received if archivable(at) is None else None for (_, _, at), read in zip(mails, headers, strict=True)
    ]
    subjects = [subject_key(read.subject) for read in headers]
    return list(map(_rows, mails, headers, canonicals, receipts, subjects))


def _rows(
    mail: Mail, headers: Headers, canonical: bytes, first_received: datetime | None, thread_subject: UUID | None
) -> MessageRows:
    raw, sha256, given_at = mail
    received_at = archivable(given_at)
    message_id = message_uuid(sha256)
    dated = choose_date(headers.date, received_at, first_received)
    author = headers.author
    row = {
        "id": message_id,
        "sha256": sha256.hex(),
        "canonical_sha256": canonical.hex(),
        "internet_message_id": headers.message_id or None,
        "in_reply_to": next(iter(headers.in_reply_to), None),
        "reference_ids": headers.references,
        "sent_at": headers.date,
        "received_at": received_at or first_received,
        "sort_at": sort_date(headers.date, received_at, first_received) or _NO_DATE,
        "date_origin": _ORIGINS[dated.origin],
        "sender": _address(author) if author else None,
        "sender_name": (author.name or None) if author else None,
        "subject": headers.subject or None,
        "thread_subject": thread_subject,
        "size_bytes": raw.size,
        "has_attachments": headers.has_attachments,
        "defects": headers.defects if received_at or not given_at else (*headers.defects, _out_of_range(given_at)),
    }
    return MessageRows(message_id, sha256, row, _participants(message_id, headers))


def _out_of_range(given: datetime) -> str:
    return f"server_date_out_of_range: {given.isoformat()}"


def _headers(raw: Bytes, sha256: bytes) -> Headers:
    head = raw.read(0, min(raw.size, _HEADER_BYTES))
    try:
        return read_headers(head)
    except Exception:  # noqa: BLE001  (a mail that breaks the reader is archived like any other)
        _log.exception("header_unreadable", sha256=sha256.hex())
        return read_headers(b"")


def _canonical(raw: Bytes) -> bytes:
    if isinstance(raw, Memory):
        return canonical_sha256(raw.data)
    canonical = Canonical()
    for piece in raw.pieces():
        canonical.feed(piece)
    return canonical.digest()


def _participants(message_id: UUID, headers: Headers) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for role, addresses in (
        (ParticipantRole.FROM, headers.from_),
        (ParticipantRole.SENDER, headers.sender),
        (ParticipantRole.REPLY_TO, headers.reply_to),
        (ParticipantRole.TO, headers.to),
        (ParticipantRole.CC, headers.cc),
        (ParticipantRole.BCC, headers.bcc),
    ):
        for entry in addresses:
            rows.append(
                {"m": message_id, "p": len(rows), "r": role, "a": _address(entry), "n": entry.name or None},
            )
    return rows


def _address(entry: Address) -> str:
    return entry.key or entry.name or entry.group
