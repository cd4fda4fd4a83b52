"""The cheap read of a message: its header fields as values, without a look at the body."""

import re
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from archiver.mail import limits
from archiver.mail.addresses import Address, parse_addresses
from archiver.mail.dates import parse_date
from archiver.mail.defects import Defects
from archiver.mail.fields import Block, split_block
from archiver.mail.words import header_text, tidy, unstructured

_ADDRESS_FIELDS = frozenset({b"from", b"sender", b"to", b"cc", b"bcc", b"reply-to"})
_WANTED = _ADDRESS_FIELDS | {
    b"message-id", b"subject", b"date", b"received", b"references", b"in-reply-to", b"list-id", b"content-type",
    b"content-disposition", b"x-ms-has-attach", b"auto-submitted", b"precedence",
}  # fmt: skip
_ID = re.compile(r"<([^<>\s]{1,998})>")
_RECEIVED_LOOKED_AT = 10
_NO_ATTACHMENT = ("text/", "multipart/", "message/")


@dataclass(frozen=True, slots=True)
class Headers:
    """What the header block says. Dates are in UTC; Message-IDs stand without their angle brackets."""

    message_id: str
    subject: str
    from_: tuple[Address, ...]
    sender: tuple[Address, ...]
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    bcc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    date: datetime | None
    first_received: datetime | None
    references: tuple[str, ...]
    in_reply_to: tuple[str, ...]
    list_id: str
    content_type: str  # of the root, "text/plain" where nothing is said
    has_attachments: bool  # a guess, from the type of the root
    header_bytes: int
    defects: tuple[str, ...]

    @property
    def author(self) -> Address | None:
        """Who wrote it: the first of From, else Sender."""
        return next(iter(self.from_ or self.sender), None)

    @property
    def recipients(self) -> tuple[Address, ...]:
        return self.to + self.cc + self.bcc


def read_headers(raw: bytes) -> Headers:
    """Reads the header fields of a message, or of the first bytes of a huge one. Never raises."""
    defects = Defects()
    return headers_of(split_block(raw, defects), defects)


def headers_of(block: Block, defects: Defects) -> Headers:
    values: dict[bytes, bytes] = {}
    received: list[bytes] = []
    for name, value in block.fields:
        if name == b"received":
            received.append(value)
        elif name not in _WANTED:
            continue
        elif name not in values:
            values[name] = value
        elif name in _ADDRESS_FIELDS:  # RFC 5322 allows one field; two say more than one
            values[name] += b", " + value
            defects.add("repeated_field", name.decode("ascii", "replace"))
    get = values.get
    addresses = _addresses(values, defects)
    content_type = _content_type(get(b"content-type", b"")[:512].partition(b";")[0])
    return Headers(
        message_id=_message_id(get(b"message-id", b""), defects),
        subject=unstructured(get(b"subject", b"")[: limits.VALUE_CHARS], defects),
        from_=addresses.get(b"from", ()),
        sender=addresses.get(b"sender", ()),
        to=addresses.get(b"to", ()),
        cc=addresses.get(b"cc", ()),
        bcc=addresses.get(b"bcc", ()),
        reply_to=addresses.get(b"reply-to", ()),
        date=_date(get(b"date"), defects),
        first_received=first_received(received),
        references=message_ids(get(b"references", b""), defects),
        in_reply_to=message_ids(get(b"in-reply-to", b""), defects),
        list_id=_list_id(get(b"list-id", b""), defects),
        content_type=content_type,
        has_attachments=_guess_attachments(content_type, values),
        header_bytes=block.body_start,
        defects=defects.as_tuple(),
    )


def _addresses(values: dict[bytes, bytes], defects: Defects) -> dict[bytes, tuple[Address, ...]]:
    found: dict[bytes, tuple[Address, ...]] = {}
    left = limits.ADDRESSES
    for name in (b"from", b"sender", b"reply-to", b"to", b"cc", b"bcc"):
        if name in values and left > 0:
            found[name] = parse_addresses(values[name], defects, left)
            left -= len(found[name])
    return found


def _message_id(value: bytes, defects: Defects) -> str:
    if not value:
        return ""
    text = header_text(value[: limits.VALUE_CHARS], defects)
    found = _ID.search(text)
    return found[1] if found else tidy(text).strip("<>")[:998]


def message_ids(value: bytes, defects: Defects) -> tuple[str, ...]:
    """The ids of References or In-Reply-To, each once, in order; the last ones when there are too many."""
    if not value:
        return ()
    text = header_text(value, defects)
    ids = dict.fromkeys(_ID.findall(text) or [word for word in text.split() if "@" in word and len(word) <= 998])
    if len(ids) > limits.REFERENCES:
        defects.add("too_many_references")
    return tuple(ids)[-limits.REFERENCES :]


def _date(value: bytes | None, defects: Defects) -> datetime | None:
    if value is None:
        defects.add("no_date")
        return None
    text = header_text(value[: limits.DATE_CHARS], defects)
    date = parse_date(text)
    if date is None:
        defects.add("unreadable_date", text.strip())
    return date


def first_received(values: list[bytes]) -> datetime | None:
    """When the last server on the way got it, which is what the first `Received` says."""
    for value in values[:_RECEIVED_LOOKED_AT]:
        start = value.rfind(b";") + 1
        date = parse_date(header_text(value[start : start + limits.DATE_CHARS], Defects()))
        if date is not None:
            return date
    return None


def _list_id(value: bytes, defects: Defects) -> str:
    if not value:
        return ""
    text = unstructured(value[: limits.VALUE_CHARS], defects)
    found = _ID.search(text)
    return (found[1] if found else text).lower()


@lru_cache(maxsize=1024)
def _content_type(value: bytes) -> str:
    text = value.strip().decode("ascii", "replace").lower()
    return text if "/" in text else "text/plain"


def _guess_attachments(content_type: str, values: dict[bytes, bytes]) -> bool:
    if content_type == "multipart/mixed" or not content_type.startswith(_NO_ATTACHMENT):
        return True
    if b"x-ms-has-attach" in values and values[b"x-ms-has-attach"].strip().lower() == b"yes":
        return True
    return b"content-disposition" in values and values[b"content-disposition"].strip().lower().startswith(b"attachment")
