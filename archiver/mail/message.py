"""A whole message as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from archiver.mail import limits
from archiver.mail.attachments import Attachment
from archiver.mail.body import BodyCollector
from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.flags import Flags, header_flags
from archiver.mail.formats.calendar import Event
from archiver.mail.formats.reports import Delivery
from archiver.mail.header.fields import Block, Field, split_block
from archiver.mail.header.headers import Headers, headers_of
from archiver.mail.header.words import unstructured
from archiver.mail.parts import scan_parts
from archiver.mail.text.html_text import read_html
from archiver.mail.text.marks import MarkedText, MarkSpan, unmarked
from archiver.mail.threads import is_reply_subject

PARSER_VERSION = 3  # increased whenever the same bytes give other values
SIDE_BY_SIDE = 100  # messages to read together: fewer are slower, more are not faster
_FOR_TEXT = frozenset({"subject", "references", "in-reply-to", "list-id"})  # the first three decide whether it is a reply


@dataclass(slots=True)
class Message:
    """The content of a message. `text` has everything that can be searched, except the content of attachments."""

    headers: Headers
    fields: list[Field]  # of the header, undecoded
    text: str
    spans: tuple[MarkSpan, ...]  # marks on the text
    html: str  # original and unsafe: show it only through `safe_html`
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


def read_message(raw: bytes, budget: DecodeBudget | None = None) -> Message:
    """Reads a message. Never raises; whatever is malformed is named in `defects`.

    `budget` limits what is decoded if the message is part of something with a limit of its own.
    """
    return read_messages((raw,), None if budget is None else (budget,))[0]


def read_messages(raws: Sequence[bytes], budgets: Sequence[DecodeBudget] | None = None) -> list[Message]:
    """Reads several messages, each as `read_message` does: one step for all of them, then the next step.

    Code and tables of a step stay in the processor's cache, which saves a fifth of the time.
    """
    defects = [Defects() for _ in raws]
    raws = list(map(_beginning, raws, defects))
    blocks = list(map(split_block, raws, defects))
    headers = list(map(headers_of, blocks, defects))
    flags = [header_flags(block.fields, header) for block, header in zip(blocks, headers, strict=True)]
    bodies = _read_bodies(raws, blocks, headers, defects, budgets)
    texts = [body.text() for body in bodies]
    htmls = [body.html() for body in bodies]
    return list(map(_message, blocks, headers, flags, bodies, texts, htmls))


def read_texts(raws: Sequence[bytes]) -> list[Message]:
    """Like `read_messages`, for callers that need text and files only because they already have the headers.

    Of the header, only the fields that affect the text and `list_id` are read; its defects, its flags and the HTML are omitted.
    """
    defects = [Defects() for _ in raws]
    raws = list(map(_beginning, raws, defects))
    blocks = list(map(split_block, raws, defects))
    headers = list(map(_few_headers, blocks))
    bodies = _read_bodies(raws, blocks, headers, defects)
    texts = [body.text() for body in bodies]
    return list(map(_message, blocks, headers, repeat((False, False, False)), bodies, texts, repeat("")))


def _few_headers(block: Block) -> Headers:
    return headers_of(Block([field for field in block.fields if field[0] in _FOR_TEXT], 0), Defects())


def _beginning(raw: bytes, defects: Defects) -> bytes:
    if len(raw) <= limits.MESSAGE_BYTES:
        return raw
    defects.add("message_too_large")
    return raw[: limits.MESSAGE_BYTES]


def _read_bodies(
    raws: Sequence[bytes],
    blocks: list[Block],
    headers: list[Headers],
    defects: list[Defects],
    budgets: Sequence[DecodeBudget] | None = None,
) -> list[BodyCollector]:
    budgets = budgets or [DecodeBudget.of(len(raw)) for raw in raws]
    parts = list(map(scan_parts, raws, blocks, defects, budgets))
    bodies = list(map(BodyCollector, parts, defects, budgets, map(_is_reply, headers)))
    for body in bodies:
        body.read()
    for body in bodies:
        body.mark_plain()
    read_html([html for body in bodies for html in body.wanted_html()])
    return bodies


def _is_reply(headers: Headers) -> bool:
    return bool(headers.references or headers.in_reply_to) or is_reply_subject(headers.subject)


def _message(
    block: Block, headers: Headers, flags: tuple[bool, bool, bool], body: BodyCollector, marked: MarkedText, html: str
) -> Message:
    bulk, auto_reply, bounce = flags
    return Message(
        headers=headers,
        fields=block.fields,
        text=marked.text,
        spans=marked.spans,
        html=html,
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
        defects=body.defects.as_tuple(),
    )
