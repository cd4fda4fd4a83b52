"""Reads only the header of a message: its fields as values. Cheap, because the body is not read."""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from archiver.date_range import archivable
from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.header.addresses import Address, parse_addresses
from archiver.mail.header.dates import parse_date
from archiver.mail.header.fields import BLANK, Block, FieldNames, split_block
from archiver.mail.header.words import field_bytes, header_text, tidy, unstructured

_ADDRESS_FIELDS = frozenset({"from", "sender", "to", "cc", "bcc", "reply-to"})
_WANTED = _ADDRESS_FIELDS | {
    "message-id", "subject", "date", "received", "references", "in-reply-to", "list-id", "content-type",
    "content-disposition", "x-ms-has-attach",
}  # fmt: skip
_WANTED_NAMES = FieldNames(_WANTED)
_ID = re.compile(r"<([^<>\s]{1,998})>")
_RECEIVED_LOOKED_AT = 10
_NO_ATTACHMENT = ("text/", "multipart/", "message/")


@dataclass(slots=True)  # not frozen, because creating a frozen one takes three times as long
class Headers:
    """The values of a header block. Dates are in UTC; Message-IDs are without angle brackets."""

    message_id: str
    subject: str
    from_: tuple[Address, ...]
    sender: tuple[Address, ...]
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    date: datetime | None
    received: list[str]  # the `Received` fields, unparsed, the last server first
    references: tuple[str, ...]
    in_reply_to: tuple[str, ...]
    list_id: str
    content_type: str  # of the root; "text/plain" if there is no Content-Type
    has_attachments: bool  # a guess, from the type of the root
    header_bytes: int
    defects: tuple[str, ...]

    @property
    def author(self) -> Address | None:
        """The author: the first address of From, else of Sender; if there is no address, the first name.

        From may be an empty group (RFC 6854), or a name only.
        """
        if self.from_ and self.from_[0].address:
            return self.from_[0]
        entries = self.from_ + self.sender
        return next((entry for entry in entries if entry.address), next(iter(entries), None))

    @property
    def first_received(self) -> datetime | None:
        """When the last server received it, by the first `Received`. Parsed on demand."""
        return _first_date(self.received[:_RECEIVED_LOOKED_AT])

    @property
    def oldest_received(self) -> datetime | None:
        """When the first server received it, by the last `Received`. Parsed on demand."""
        return _first_date(self.received[: -_RECEIVED_LOOKED_AT - 1 : -1])

    @property
    def recipients(self) -> tuple[Address, ...]:
        return self.to + self.cc + self.bcc


def _first_date(received: list[str]) -> datetime | None:
    """The date of the first of these fields that has one."""
    for value in received:
        start = value.rfind(";") + 1
        date = archivable(parse_date(header_text(value[start : start + limits.DATE_CHARS], Defects())))
        if date is not None:
            return date
    return None


def read_headers(raw: bytes) -> Headers:
    """Reads the header fields of a message, or of the first bytes of a huge one. Never raises."""
    defects = Defects()
    return headers_of(split_block(raw, defects, names=_WANTED_NAMES), defects)


def headers_of(block: Block, defects: Defects) -> Headers:
    values: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    received: list[str] = []
    for name, value in block.fields:
        if name not in _WANTED:
            continue
        if name == "received":
            received.append(value)
        elif name not in values:
            values[name] = value
        elif name in _ADDRESS_FIELDS:  # RFC 5322 allows one field, but several occur, and each has addresses
            more.setdefault(name, [values[name]]).append(value)
            defects.add("repeated_field", name)
    for name, several in more.items():
        values[name] = ", ".join(several)
    get = values.get
    addresses = _addresses(values, defects)
    content_type = _content_type(get("content-type", "")[:512].partition(";")[0])
    return Headers(
        message_id=_message_id(get("message-id", ""), defects),
        subject=unstructured(get("subject", "")[: limits.VALUE_CHARS], defects),
        from_=addresses.get("from", ()),
        sender=addresses.get("sender", ()),
        to=addresses.get("to", ()),
        cc=addresses.get("cc", ()),
        bcc=addresses.get("bcc", ()),
        reply_to=addresses.get("reply-to", ()),
        date=_date(get("date"), defects),
        received=received,
        references=message_ids(get("references", ""), defects),
        in_reply_to=message_ids(get("in-reply-to", ""), defects),
        list_id=_list_id(get("list-id", ""), defects),
        content_type=content_type,
        has_attachments=_guess_attachments(content_type, values),
        header_bytes=block.body_start,
        defects=defects.as_tuple(),
    )


def _addresses(values: dict[str, str], defects: Defects) -> dict[str, tuple[Address, ...]]:
    found: dict[str, tuple[Address, ...]] = {}
    left = limits.ADDRESSES
    for name in ("from", "sender", "reply-to", "to", "cc", "bcc"):
        if name in values and left > 0:
            found[name] = parse_addresses(values[name], defects, left)
            left -= len(found[name])
    return found


def _message_id(value: str, defects: Defects) -> str:
    if not value:
        return ""
    text = header_text(value[: limits.VALUE_CHARS], defects)
    found = _ID.search(text)
    return found[1] if found else tidy(text).strip("<>")[:998]


def message_ids(value: str, defects: Defects) -> tuple[str, ...]:
    """The ids of References or In-Reply-To, each once, in order; only the last ones if there are too many."""
    if not value:
        return ()
    text = header_text(value, defects)
    ids = dict.fromkeys(_ID.findall(text) or [word for word in text.split() if "@" in word and len(word) <= 998])
    if len(ids) > limits.REFERENCES:
        defects.add("too_many_references")
    return tuple(ids)[-limits.REFERENCES :]


def _date(value: str | None, defects: Defects) -> datetime | None:
    if value is None:
        defects.add("no_date")
        return None
    text = header_text(value[: limits.DATE_CHARS], defects)
    date = parse_date(text)
    if date is None:
        defects.add("unreadable_date", text.strip())
        return None
    kept = archivable(date)
    if kept is None:
        defects.add("date_out_of_range", text.strip())
    return kept


def _list_id(value: str, defects: Defects) -> str:
    if not value:
        return ""
    text = unstructured(value[: limits.VALUE_CHARS], defects)
    found = _ID.search(text)
    return (found[1] if found else text).lower()


@lru_cache(maxsize=1024)
def _content_type(value: str) -> str:
    text = field_bytes(value).strip().decode("ascii", "replace").lower()
    return text if "/" in text else "text/plain"


def _guess_attachments(content_type: str, values: dict[str, str]) -> bool:
    if content_type == "multipart/mixed" or not content_type.startswith(_NO_ATTACHMENT):
        return True
    if "x-ms-has-attach" in values and values["x-ms-has-attach"].strip(BLANK).lower() == "yes":
        return True
    return "content-disposition" in values and values["content-disposition"].strip(BLANK).lower().startswith("attachment")
