"""Builds the text, the HTML and the files of a message from its parts."""

import html as html_module
import re
from dataclasses import dataclass, field

from archiver.mail import charsets, limits
from archiver.mail.attachments import Attachment, attachment_of, wrapped_file
from archiver.mail.budget import DecodeBudget
from archiver.mail.defects import Defects
from archiver.mail.formats.calendar import Event, read_calendar
from archiver.mail.formats.embedded import take_files
from archiver.mail.formats.pgp import ENCRYPTED_TEXT, SIGNED_TEXT, unwrap_signed
from archiver.mail.formats.reports import Delivery, read_report
from archiver.mail.formats.smime import SmimeKind, smime_kind
from archiver.mail.formats.tnef import is_tnef, read_tnef
from archiver.mail.header.fields import Block
from archiver.mail.header.headers import Headers, headers_of
from archiver.mail.parts import MimePart
from archiver.mail.text.alternatives import combine
from archiver.mail.text.flowed import unflow
from archiver.mail.text.html_text import Html
from archiver.mail.text.marks import Mark, MarkedText, MarkSpan
from archiver.mail.text.quotes import mark_quotes

_BODY_TYPES = frozenset(
    {"text/plain", "text/html", "text/enriched", "text/richtext", "text/calendar", "text/x-amp-html", "text"}
)
_REPORT_TYPES = frozenset({"message/delivery-status", "message/disposition-notification", "message/global-delivery-status"})
_TNEF_TYPES = frozenset({"application/ms-tnef", "application/vnd.ms-tnef"})
_PKCS7_TYPES = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*+=\s*+[\"']?\s*+([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_ENRICHED = re.compile(r"<(/?)(?:param>[^<]*</param|[a-z-]{1,60})>", re.IGNORECASE)
_STUB_CHARS = 300  # a plain alternative shorter than this may only say that there is HTML


@dataclass(slots=True)
class _Alternatives:
    """The forms of one text: a single text part, or the parts of a multipart/alternative."""

    plain: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    marked: list[MarkedText] = field(default_factory=list)  # the plain parts
    from_html: list[Html] = field(default_factory=list)


@dataclass(slots=True)
class BodyCollector:
    """Collects the content of all parts. One per message; the texts of nested messages are collected separately."""

    parts: list[MimePart]
    defects: Defects
    budget: DecodeBudget
    is_reply: bool = True  # only then is there something to quote in HTML; elsewhere <blockquote> is an indentation
    attachments: list[Attachment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    is_signed: bool = False
    is_encrypted: bool = False
    has_calendar: bool = False
    _texts: dict[int, dict[int, _Alternatives]] = field(default_factory=dict)  # by message, then by group
    _messages: list[int] = field(default_factory=list)  # for each part, the index of the message that it belongs to
    _groups: list[int] = field(default_factory=list)  # for each part, the multipart/alternative that it belongs to, or -1
    _first_text: set[int] = field(default_factory=set)

    def read(self) -> None:
        for index, part in enumerate(self.parts):
            parent = part.parent
            in_message = parent >= 0 and self.parts[parent].is_message
            self._messages.append(parent if in_message else self._messages[parent] if parent >= 0 else -1)
            inherited = self._groups[parent] if parent >= 0 and not in_message else -1
            self._groups.append(index if part.content_type.value == "multipart/alternative" else inherited)
            if part.is_container:
                self._container(part, index)
            else:
                self._leaf(part, index)

    def _container(self, part: MimePart, index: int) -> None:
        kind = part.content_type.value
        if kind == "multipart/signed":
            self.is_signed = True
        elif kind == "multipart/encrypted":
            self.is_encrypted = True
        elif kind in _PKCS7_TYPES:
            self.is_signed = True
        elif part.is_message:
            subject = self._nested_headers(index).subject
            self._attach(attachment_of(part, name=f"{subject or 'message'}.eml", is_message=True))

    def _nested_headers(self, index: int) -> Headers:
        """The headers of the message that this part contains, which is the part after it."""
        return headers_of(Block(self.parts[index + 1].fields, 0), Defects())

    def _leaf(self, part: MimePart, index: int) -> None:
        kind = part.content_type.value
        if kind.startswith("multipart/"):  # not parsed as a container: read as text, which it may be
            self._text(part, index, self._content(part), "text/plain")
        elif self._is_body(part, index, kind):
            self._text(part, index, self._content(part), kind)
        elif kind in _REPORT_TYPES:
            content = self._content(part)
            self.deliveries += read_report(content)
            self._group(index).plain.append(_text_lines(content, self.defects))
        elif kind == "text/rfc822-headers":
            self._group(index).plain.append(_text_lines(self._content(part), self.defects))
        elif kind in _TNEF_TYPES or is_tnef(part.head()):
            self._tnef(part, index, part.content(self.defects))
        else:
            self._file(part, kind)

    def _content(self, part: MimePart) -> bytes:
        """The decoded content. If the budget does not suffice, the part becomes a file and its text is omitted."""
        if part.is_plain or self.budget.take(part.size, self.defects):
            return part.content(self.defects)
        self._attach(attachment_of(part))
        return b""

    def _is_body(self, part: MimePart, index: int, kind: str) -> bool:
        if kind not in _BODY_TYPES or part.disposition.value == "attachment":
            return False
        message = self._messages[index]
        is_first = message not in self._first_text
        self._first_text.add(message)
        return is_first or not part.filename or self._groups[index] >= 0

    def _file(self, part: MimePart, kind: str) -> None:
        if kind in _PKCS7_TYPES:
            container = smime_kind(part.head())
            self.is_encrypted = self.is_encrypted or container is SmimeKind.ENCRYPTED
            self.is_signed = self.is_signed or container is SmimeKind.SIGNED
        elif kind == "text/calendar":
            self._calendar(part, self._content(part))
        self._attach(attachment_of(part))

    def _text(self, part: MimePart, index: int, content: bytes, kind: str) -> None:
        charset = part.content_type.get("charset")
        group = self._group(index)
        if kind in ("text/html", "text/x-amp-html"):
            if kind == "text/html" or not group.html:
                group.html.append(_decode_html(content, charset, self.defects))
            return
        if kind == "text/calendar":
            self._calendar(part, content)
            self._attach(attachment_of(part, name="invite.ics"))
            return
        if b"begin" in content:
            embedded = take_files(content)
            content = embedded.rest
            for number, file in enumerate(embedded.found, start=1):
                name = charsets.decode(file.name, "", Defects())
                if self.budget.take(len(file.content), self.defects):
                    self._attach(wrapped_file(part, number, name, file.content))
        text = charsets.decode(content, charset, self.defects)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if part.content_type.get("format").lower() == "flowed":
            text = unflow(text, delete_space=part.content_type.get("delsp").lower() == "yes")
        if kind in ("text/enriched", "text/richtext"):
            text = _ENRICHED.sub("", text.replace("<<", "<"))
        if "-----BEGIN PGP" in text:
            self.is_encrypted = self.is_encrypted or ENCRYPTED_TEXT in text
            self.is_signed = self.is_signed or SIGNED_TEXT in text
        group.plain.append(text)

    def _calendar(self, part: MimePart, content: bytes) -> None:
        self.has_calendar = True
        self.events += read_calendar(charsets.decode(content, part.content_type.get("charset") or "utf-8", self.defects))

    def _tnef(self, part: MimePart, index: int, content: bytes) -> None:
        tnef = read_tnef(content, self.budget, self.defects)
        if tnef is None:
            self.defects.add("tnef_broken")
            self._attach(attachment_of(part))
            return
        group = self._texts.setdefault(self._messages[index], {}).setdefault(index, _Alternatives())
        if tnef.text:
            group.plain.append(tnef.text.replace("\r\n", "\n"))
        if tnef.html:
            group.html.append(tnef.html)
        for number, file in enumerate(tnef.files, start=1):
            self._attach(wrapped_file(part, number, file.name, file.content))

    def _attach(self, attachment: Attachment) -> None:
        if len(self.attachments) >= limits.ATTACHMENTS:
            self.defects.add("too_many_attachments")
        else:
            self.attachments.append(attachment)

    def _group(self, index: int) -> _Alternatives:
        group = self._groups[index]
        return self._texts.setdefault(self._messages[index], {}).setdefault(group if group >= 0 else index, _Alternatives())

    def html(self) -> str:
        """The HTML of the message itself, with plain passages between HTML ones escaped; empty if all of it is plain."""
        groups = self._texts.get(-1, {}).values()
        if not any(group.html for group in groups):
            return ""
        pieces: list[str] = []
        for group in groups:
            pieces += group.html or [f"<pre>{html_module.escape(text)}</pre>" for text in group.plain if text.strip()]
        return "\n".join(pieces)

    def mark_plain(self) -> None:
        for groups in self._texts.values():
            for group in groups.values():
                group.marked = [mark_quotes(text) if SIGNED_TEXT not in text else unwrap_signed(text) for text in group.plain]

    def wanted_html(self) -> list[Html]:
        """All HTML whose words belong to the text. It must be read before `text` is called."""
        wanted: list[Html] = []
        for message, groups in self._texts.items():
            for group in groups.values():
                may_quote = self.is_reply or message >= 0
                group.from_html = [Html(html, self.defects, may_quote) for html in group.html]
                wanted += group.from_html
        return wanted

    def text(self) -> MarkedText:
        """The text of the message, followed by the texts of nested messages, which are marked."""
        pieces: list[str] = []
        spans: list[MarkSpan] = []
        length = 0
        for message in self._message_order():
            start = length
            for marked in self._message_texts(message):
                if length + len(marked.text) > limits.TEXT_CHARS:
                    self.defects.add("text_too_large")
                    marked = MarkedText(marked.text[: max(0, limits.TEXT_CHARS - length)])
                spans += [span.moved(length) for span in marked.spans] if length else marked.spans
                pieces.append(marked.text)
                length += len(marked.text) + 1
            if message >= 0 and length > start:
                spans.append(MarkSpan(start, length - 1, Mark.NESTED))
        if len(pieces) > 1:  # those of one text are in order
            spans.sort(key=lambda span: (span.start, -span.end))
        return MarkedText("\n".join(pieces), tuple(spans[: limits.SPANS]))

    def _message_order(self) -> list[int]:
        """The message itself first, then nested messages in document order."""
        nested = [index for index, part in enumerate(self.parts) if part.is_container and part.is_message]
        return [-1, *nested]

    def _message_texts(self, message: int) -> list[MarkedText]:
        texts: list[MarkedText] = []
        if message >= 0:
            headers = self._nested_headers(message)
            people = ", ".join(map(str, headers.from_ + headers.recipients))
            texts.append(MarkedText("\n".join(line for line in (headers.subject, people) if line)))
        for group in self._texts.get(message, {}).values():
            texts += _both_forms(group)
        if message == -1:
            texts += [MarkedText(event.as_text()) for event in self.events]
        return [marked for marked in texts if marked.text]


def _both_forms(group: _Alternatives) -> list[MarkedText]:
    plain = [marked for marked in group.marked if marked.text.strip()]
    is_short = sum(len(marked.text.strip()) for marked in plain) <= _STUB_CHARS
    return combine(plain, [one.text for one in group.from_html if one.text.text], prefer_html=is_short)


def _decode_html(content: bytes, charset: str, defects: Defects) -> str:
    if not content.isascii() and (not charset or charsets.codec_for(charset) in (None, "ascii")):
        meta = _META_CHARSET.search(content[:8192])
        if meta is not None:
            charset = meta[1].decode("ascii")
    text = charsets.decode(content, charset, defects)
    return text.replace("\r\n", "\n") if "\r" in text else text


def _text_lines(content: bytes, defects: Defects) -> str:
    return charsets.decode(content, "", defects).replace("\r\n", "\n")
