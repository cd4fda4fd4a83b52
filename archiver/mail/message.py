"""A whole message as values."""

from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.attachments import Attachment
from archiver.mail.body import Body
from archiver.mail.calendar import Event
from archiver.mail.defects import Defects
from archiver.mail.fields import Field, split_block
from archiver.mail.flags import Flags, header_flags
from archiver.mail.headers import Headers, headers_of
from archiver.mail.marks import Span, unmarked
from archiver.mail.parts import scan_parts
from archiver.mail.reports import Delivery
from archiver.mail.threads import is_reply_subject
from archiver.mail.words import unstructured

PARSER_VERSION = 1  # rises when the same bytes give other values


@dataclass(slots=True)
class Message:
    """What a message says. Its text holds everything that can be searched apart from the content of attachments."""

    headers: Headers
    fields: list[Field]  # of the header, raw
    text: str
    spans: tuple[Span, ...]  # marks on the text
    html: str  # as it came: show it through `safe_html` only
    attachments: tuple[Attachment, ...]
    events: tuple[Event, ...]
    deliveries: tuple[Delivery, ...]
    flags: Flags
    defects: tuple[str, ...]

    @property
    def list_headers(self) -> dict[str, str]:
        """List-Id, List-Unsubscribe, …: lower-case name and value."""
        return {
            name: unstructured(value[: limits.VALUE_CHARS], Defects())
            for name, value in self.fields
            if name.startswith("list-")
        }

    @property
    def new_text(self) -> str:
        """The text without quotes, signatures, hidden passages and nested messages."""
        return unmarked(self.text, self.spans)

    @property
    def has_attachments(self) -> bool:
        return any(not attachment.inline for attachment in self.attachments)


def read_message(raw: bytes) -> Message:
    """Reads a message. Never raises; what could not be read as it was meant is named in `defects`."""
    defects = Defects()
    block = split_block(raw, defects)
    headers = headers_of(block, defects)
    bulk, auto_reply, bounce = header_flags(block.fields, headers)
    is_reply = bool(headers.references or headers.in_reply_to) or is_reply_subject(headers.subject)
    body = Body(scan_parts(raw, block, defects), defects, is_reply)
    body.read()
    marked = body.text()
    return Message(
        headers=headers,
        fields=block.fields,
        text=marked.text,
        spans=marked.spans,
        html=body.html(),
        attachments=tuple(body.attachments),
        events=tuple(body.events),
        deliveries=tuple(body.deliveries),
        flags=Flags(
            bulk=bulk,
            auto_reply=auto_reply,
            bounce=bounce or any(delivery.action == "failed" for delivery in body.deliveries),
            signed=body.is_signed,
            encrypted=body.is_encrypted,
            calendar=body.has_calendar,
        ),
        defects=defects.as_tuple(),
    )
