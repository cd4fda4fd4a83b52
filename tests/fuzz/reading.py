"""The whole path that the bytes of a mail take through our parsers, and what must hold after it.

`python -m tests.fuzz.reading FILE…` reads files; without a name, requests on standard input, one after the other.
"""

import hashlib
import json
import struct
import sys
import traceback
from pathlib import Path

from archiver.date_range import END, FIRST
from archiver.extract import limits as extraction_limits
from archiver.extract.archives import ARCHIVES
from archiver.extract.kinds import detect_kind
from archiver.extract.reading import extract_file
from archiver.mail import limits
from archiver.mail.attachments import Attachment
from archiver.mail.canonical import Canonical, canonical_sha256
from archiver.mail.header.headers import Headers, read_headers
from archiver.mail.message import Message, read_message, read_texts
from archiver.mail.text.safe_html import safe_html
from archiver.mail.threads import thread_keys
from archiver.search.document import FileText, Inputs, Participant, build_document
from archiver.store.content import MemoryContent
from archiver.store.parts import find_cuts
from archiver.sync.ingest.rows import MessageRows, describe
from tests.fuzz.limited import LENGTH

_PIECE = 4093
_OPENED = ARCHIVES | {"mail", "text", "html"}


def read_all(raw: bytes) -> None:
    """Raises if anything does, or says what can't be."""
    _canonical(raw)
    row = describe(MemoryContent(raw), hashlib.sha256(raw).digest(), None)
    find_cuts(MemoryContent(raw))
    headers = read_headers(raw)
    thread_keys(headers)
    _dates(headers)
    message = read_message(raw)
    safe_html(message.html, lambda _: None)
    assert len(message.text) <= limits.TEXT_CHARS + limits.PARTS, "more text than the limit"
    assert len(message.defects) <= limits.DEFECTS
    assert all(0 <= span.start <= span.end <= len(message.text) for span in message.spans), "a span outside of the text"
    message.new_text.encode("utf-8", "replace")
    assert read_texts([raw])[0].text == message.text, "read_texts says something else than read_message"
    for attachment in message.attachments:
        _attachment(attachment)
    _document(row, message)


def _attachment(attachment: Attachment) -> None:
    content = attachment.content
    assert len(content) == attachment.size_bytes
    assert "/" not in attachment.name
    kind = detect_kind(content, attachment.name, attachment.content_type)
    if kind in _OPENED and not attachment.is_message:
        extraction = extract_file(content, attachment.name, attachment.content_type)
        assert sum(len(page.text) for page in extraction.pages) <= extraction_limits.TEXT_CHARS


def _document(row: MessageRows, message: Message) -> None:
    """What search gets to know of it."""
    people = [Participant(one["r"], one["a"], one["n"]) for one in row.participants]
    files = [FileText(file.name, file.content_type, file.sha256) for file in message.attachments]
    values = row.message
    document = build_document(
        Inputs(
            id=row.id,
            version=1,
            sha256=row.sha256,
            sort_at=values["sort_at"],
            size_bytes=values["size_bytes"],
            message=message,
            internet_message_id=values["internet_message_id"],
            sender=values["sender"],
            subject=values["subject"],
            people=people,
            files=files,
        )
    )
    assert json.dumps(document)


def _canonical(raw: bytes) -> None:
    piecewise = Canonical()
    for start in range(0, len(raw), _PIECE):
        piecewise.feed(raw[start : start + _PIECE])
    assert piecewise.digest() == canonical_sha256(raw), "another hash in pieces"


def _dates(headers: Headers) -> None:
    for date in (headers.date, headers.first_received):
        assert date is None or FIRST <= date < END, "a date that Postgres or Python can't hold"


def main() -> None:
    if len(sys.argv) > 1:
        for name in sys.argv[1:]:
            read_all(Path(name).read_bytes())
        return
    while len(prefix := sys.stdin.buffer.read(LENGTH.size)) == LENGTH.size:
        raw = sys.stdin.buffer.read(LENGTH.unpack(prefix)[0])
        try:
            read_all(raw)
            answer = b""
        except Exception:
            answer = traceback.format_exc().encode("utf-8", "replace")
        sys.stdout.buffer.write(struct.pack(">I", len(answer)) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
