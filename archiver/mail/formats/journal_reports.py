"""Journal reports of Exchange and Microsoft 365 (MS-XJRNL): who really received a mail, with the mail itself as a part.

The mail is never parsed and written again: a report gives the offset at which its bytes begin, and the boundary that ends them.
"""

import re
from dataclasses import dataclass

from archiver.mail import charsets, limits
from archiver.mail.defects import Defects
from archiver.mail.encodings import decode_transfer
from archiver.mail.header.addresses import parse_addresses
from archiver.mail.header.fields import Block, split_block
from archiver.mail.header.parameters import Parametrised, parse_parameters

MARKS = frozenset({"x-ms-journal-report", "x-wm-journal-report"})
_IDENTITY = frozenset({"", "7bit", "8bit", "binary"})
_LINE = re.compile(r"(?i)(sender|on-behalf-of|message-id|label|to|cc|bcc|recipient)\s*+:\s*+(.*)")
_MORE = re.compile(r"(?i),\s*(expanded|forwarded)\s*:\s*")
_RECIPIENTS = 50_000


@dataclass(frozen=True, slots=True)
class RecordedRecipient:
    role: str
    """to, cc, bcc, or `recipient` if the server did not trust the header to tell which."""
    address: str
    through: str = ""
    """The distribution list, or the address that forwarded it."""


@dataclass(frozen=True, slots=True)
class JournalReport:
    senders: tuple[str, ...]
    """Also the mailbox in whose name it was sent."""
    recipients: tuple[RecordedRecipient, ...]
    inner_start: int
    """Where the bytes of the journalled mail begin in the report."""
    boundary: bytes


def read_journal_report(raw: bytes) -> JournalReport | None:
    """From the beginning of a message. None if it is not a report, or not one that can be taken apart. Never raises."""
    defects = Defects()
    block = split_block(raw, defects)
    if not any(name in MARKS for name, _ in block.fields):
        return None
    boundary = _type(block, defects).get("boundary").encode("utf-8", "surrogateescape")
    if not boundary or len(boundary) > limits.BOUNDARY_CHARS:
        return None
    first = find_delimiter(raw, boundary, max(0, block.body_start - 2))
    second = find_delimiter(raw, boundary, first[1]) if first else None
    if first is None or second is None or second[2]:
        return None
    mail = split_block(raw, defects, start=second[1], limit=limits.PART_HEADER_BYTES)
    if _type(mail, defects).value != "message/rfc822" or _encoding(mail) not in _IDENTITY or mail.body_start >= len(raw):
        return None
    senders, recipients = _read_lines(_text(raw, first[1], second[0], defects), defects)
    return JournalReport(senders, recipients, mail.body_start, boundary) if recipients or senders else None


def find_delimiter(raw: bytes, boundary: bytes, start: int) -> tuple[int, int, bool] | None:
    """The next delimiter line: where it begins with the line end that belongs to it, where it ends, and whether it closes.

    `raw` may be anything with `find`, such as a mapped file.
    """
    mark = b"--" + boundary
    at = raw.find(mark, start)
    while at >= 0:
        tail = bytes(raw[at + len(mark) : at + len(mark) + 1000])
        found = re.match(rb"(--)?[ \t]*(?:\r?\n|\Z)", tail)
        if found and (at == 0 or raw[at - 1 : at] == b"\n"):
            begins = at - (2 if raw[max(0, at - 2) : at] == b"\r\n" else 1 if at else 0)
            return max(start, begins), at + len(mark) + found.end(), found[1] is not None
        at = raw.find(mark, at + 1)
    return None


def _type(block: Block, defects: Defects) -> Parametrised:
    return parse_parameters(next((value for name, value in block.fields if name == "content-type"), ""), defects)


def _encoding(block: Block) -> str:
    return next((value for name, value in block.fields if name == "content-transfer-encoding"), "").strip().lower()


def _text(raw: bytes, start: int, end: int, defects: Defects) -> str:
    """Of the first part, which may be encoded in any way."""
    block = split_block(raw, defects, start=start, end=end, limit=limits.PART_HEADER_BYTES)
    body = decode_transfer(raw[block.body_start : end], _encoding(block), defects)
    return charsets.decode(body, _type(block, defects).get("charset"), defects)


def _read_lines(text: str, defects: Defects) -> tuple[tuple[str, ...], tuple[RecordedRecipient, ...]]:
    senders: dict[str, None] = {}
    recipients: dict[RecordedRecipient, None] = {}
    for line in text.splitlines():
        found = _LINE.match(line.strip())
        if found is None or len(recipients) >= _RECIPIENTS:
            continue
        name, value = found[1].lower(), found[2]
        if name in ("sender", "on-behalf-of"):
            senders |= dict.fromkeys(_addresses(value, defects))
        elif name in ("to", "cc", "bcc", "recipient"):
            address, *more = _MORE.split(value)
            through = next(iter(_addresses(more[-1], defects)), "") if more else ""
            recipients |= {RecordedRecipient(name, one, through): None for one in _addresses(address, defects)}
    return tuple(senders), tuple(recipients)


def _addresses(value: str, defects: Defects) -> list[str]:
    value = re.sub(r"(?i)\bsmtp:", "", value)
    return [one.key for one in parse_addresses(value, defects) if "@" in one.key]
