"""Builds the row of a message from its header alone. However broken the mail is, it gets a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from archiver.date_range import archivable
from archiver.db.ids import message_uuid
from archiver.db.states import DateOrigin
from archiver.logs import get_logger
from archiver.mail import limits
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.mail.summary import Summary, summarise
from archiver.mail.thread_groups import thread_subject
from archiver.parsing.readers import process_readers
from archiver.store.content import MemoryContent, Spooled, StoredMessage

Bytes = MemoryContent | Spooled | StoredMessage
Mail = tuple[Bytes, bytes, datetime | None]  # the bytes, their SHA-256, and the server's date

_log = get_logger(__name__)
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_BYTES = limits.LEADING_BYTES + limits.HEADER_BYTES + 4
_END = re.compile(rb"\n\r?\n")
_ODD_STARTS = (b"\xef", b"\r", b"\n")  # after these, the first blank line may not end the header
_ORIGINS = {
    "date": DateOrigin.HEADER.value,
    "server": DateOrigin.SERVER.value,
    "received": DateOrigin.RECEIVED.value,
    "none": DateOrigin.NONE.value,
}


class MessageRows(NamedTuple):
    """What is inserted into Postgres for one new message."""

    id: UUID
    sha256: bytes
    message: dict[str, Any]
    participants: list[dict[str, Any]]


def describe(raw: Bytes, sha256: bytes, received_at: datetime | None) -> MessageRows:
    return describe_all([(raw, sha256, received_at)])[0]


def describe_all(mails: Sequence[Mail]) -> list[MessageRows]:
    """The rows of each message, in order. Headers are parsed in a child process; mail it can't parse is archived anyway."""
    if not mails:
        return []
    heads, receipts = [header_bytes(raw) for raw, _, _ in mails], [archivable(at) for _, _, at in mails]
    with ThreadPoolExecutor(1, "headers") as beside:  # the child reads the headers while this process hashes
        asked = beside.submit(process_readers().summaries, heads, receipts)
        canonicals = [_canonical(raw) for raw, _, _ in mails]
        found = asked.result()
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
        "defects": found["defects"] if given_at is None else (*found["defects"], *_defects(given_at)),
    }
    people = enumerate(found["people"])
    participants = [
        {"m": message_id, "p": place, "r": role, "a": address, "n": name} for place, (role, address, name) in people
    ]
    return MessageRows(message_id, sha256, row, participants)


def _defects(given_at: datetime) -> tuple[str, ...]:
    """Records a server date as text if it can't be stored as a date."""
    if archivable(given_at) is not None:
        return ()
    return (f"server_date_out_of_range: {given_at.isoformat()}",)


def header_bytes(raw: Bytes) -> bytes:
    """The bytes the header is parsed from, with as little of the body as possible."""
    if isinstance(raw, MemoryContent) and not raw.data.startswith(_ODD_STARTS):
        end = _END.search(raw.data, 0, _HEADER_BYTES)
        if end is not None:
            return raw.data[: end.end()]
    return raw.read(0, min(raw.size, _HEADER_BYTES))


def _canonical(raw: Bytes) -> bytes:
    if isinstance(raw, MemoryContent):
        return canonical_sha256(raw.data)
    canonical = Canonical()
    for piece in raw.pieces():
        canonical.feed(piece)
    return canonical.digest()
