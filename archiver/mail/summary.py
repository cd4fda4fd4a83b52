"""The summary of a message in the database, from its header and the date of the server. Plain values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from archiver.mail.header.addresses import Address
from archiver.mail.header.dates import choose_date, sort_date
from archiver.mail.header.headers import Headers, read_headers
from archiver.mail.threads import normalise_subject

Summary = dict[str, Any]


def summarise(heads: Sequence[bytes], received_at: Sequence[datetime | None]) -> list[Summary]:
    """One summary per header block, in order.

    One step for all blocks, then the next: the code of a step stays in the processor's cache, which saves a fifth of the time.
    """
    headers = list(map(read_headers, heads))
    receipts = [
        read.first_received if at is None or read.date is None else None  # parsed only if needed
        for at, read in zip(received_at, headers, strict=True)
    ]
    subjects = [normalise_subject(read.subject or "") for read in headers]
    return list(map(_summary, headers, received_at, receipts, subjects))


def _summary(
    headers: Headers, received_at: datetime | None, first_received: datetime | None, subject: tuple[str, bool]
) -> Summary:
    author = headers.author
    return {
        "internet_message_id": headers.message_id or None,
        "in_reply_to": next(iter(headers.in_reply_to), None),
        "reference_ids": headers.references,
        "sent_at": headers.date,
        "received_at": received_at or first_received,
        "sort_at": sort_date(headers.date, received_at, headers),
        "dated_by": choose_date(headers.date, received_at, first_received).origin,
        "sender": _address(author) if author else None,
        "sender_name": (author.name or None) if author else None,
        "subject": headers.subject or None,
        "thread_subject": subject,
        "has_attachments": headers.has_attachments,
        "defects": headers.defects,
        "people": [
            (role, _address(entry), entry.name or None)
            for role, addresses in (
                ("from", headers.from_),
                ("sender", headers.sender),
                ("reply_to", headers.reply_to),
                ("to", headers.to),
                ("cc", headers.cc),
                ("bcc", headers.bcc),
            )
            for entry in addresses
        ],
    }


def _address(entry: Address) -> str:
    return entry.key or entry.name or entry.group
