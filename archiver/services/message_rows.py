"""The row of a message, from its header alone. Whatever is wrong with the mail, there is a row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog

from archiver.mail import limits
from archiver.mail.addresses import Address
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.mail.dates import choose_date, sort_date
from archiver.mail.headers import Headers, read_headers
from archiver.models.ids import message_uuid
from archiver.models.states import DateOrigin, ParticipantRole
from archiver.services.threads import subject_key
from archiver.store.content import Memory, Spooled, StoredMessage

_log = structlog.get_logger(__name__)
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_BYTES = limits.HEADER_BYTES + 4
_ORIGINS = {
    "date": DateOrigin.HEADER,
    "server": DateOrigin.SERVER,
    "received": DateOrigin.RECEIVED,
    "none": DateOrigin.NONE,
}


@dataclass(frozen=True, slots=True)
class MessageRows:
    """What Postgres gets for one new message."""

    id: UUID
    sha256: bytes
    message: dict[str, Any]
    participants: list[dict[str, Any]]


def describe(raw: Memory | Spooled | StoredMessage, sha256: bytes, received_at: datetime | None) -> MessageRows:
    message_id = message_uuid(sha256)
    headers = _headers(raw.read(0, min(raw.size, _HEADER_BYTES)), sha256)
    first_received = headers.first_received if received_at is None else None
    dated = choose_date(headers.date, received_at, first_received)
    author = headers.author
    row = {
        "id": message_id,
        "sha256": sha256.hex(),
        "canonical_sha256": _canonical(raw).hex(),
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
        "thread_subject": subject_key(headers.subject),
        "size_bytes": raw.size,
        "has_attachments": headers.has_attachments,
        "defects": headers.defects,
    }
    return MessageRows(message_id, sha256, row, _participants(message_id, headers))


def _headers(head: bytes, sha256: bytes) -> Headers:
    try:
        return read_headers(head)
    except Exception:  # noqa: BLE001  (a mail that breaks the reader is archived like any other)
        _log.exception("header_unreadable", sha256=sha256.hex())
        return read_headers(b"")


def _canonical(raw: Memory | Spooled | StoredMessage) -> bytes:
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
