"""The addresses that decide to which mailboxes a journalled mail belongs."""

from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.formats.journal_reports import MARKS
from archiver.mail.header.addresses import Address, parse_addresses
from archiver.mail.header.fields import split_block
from archiver.mail.header.headers import headers_of

_DELIVERED = ("x-gm-original-to", "x-original-to", "delivered-to", "envelope-to", "x-envelope-to", "x-rcpt-to")
"""Written by servers that deliver: for whom this copy was. The header itself may not name them."""


@dataclass(frozen=True, slots=True)
class MailRoute:
    senders: tuple[str, ...]
    recipients: tuple[str, ...]
    """Of To, Cc and Bcc."""
    delivered_to: tuple[str, ...]
    is_report: bool
    """Has the mark of a journal report."""


def read_route(head: bytes) -> MailRoute:
    """From the header of a message. Never raises."""
    defects = Defects()
    block = split_block(head, defects)
    headers = headers_of(block, defects)
    delivered: dict[str, None] = {}
    for name, value in block.fields:
        if name in _DELIVERED:
            delivered |= {one.key: None for one in parse_addresses(value[: limits.VALUE_CHARS], defects) if "@" in one.key}
    return MailRoute(
        _keys(headers.from_ + headers.sender),
        _keys(headers.recipients),
        tuple(delivered),
        any(name in MARKS for name, _ in block.fields),
    )


def _keys(entries: tuple[Address, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.key for one in entries if "@" in one.key))
