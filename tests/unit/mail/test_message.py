"""Whole messages: the corpus, a second opinion, random bytes, and messages made to cost time."""

import base64
import email
import email.policy
import itertools
import time
from collections.abc import Iterable, Iterator
from datetime import UTC
from email.message import EmailMessage
from pathlib import Path

import fast_mail_parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archiver.mail import limits
from archiver.mail.message import read_message, read_messages, read_texts
from archiver.mail.text.marks import unmarked

MAIL_FOLDERS = ("torture", "real", "bounces", "mbox", "stores", "reply-bodies", "msg", "attachments")
SECONDS = 0.5
SLACK = 4  # for a machine that does other things too


def corpus_files(corpus: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted((corpus / "public" / folder).rglob("*")) if path.is_file())


def some(paths: Iterable[Path], count: int) -> list[Path]:
    """About so many, from all of them."""
    found = list(paths)
    return found[:: max(1, len(found) // count)]


def test_each_file_of_the_corpus_is_read_in_time(corpus: Path) -> None:
    count = 0
    for path in corpus_files(corpus, *MAIL_FOLDERS):
        raw = path.read_bytes()
        started = time.process_time()
        message = read_message(raw)
        spent = time.process_time() - started
        assert spent < SECONDS * SLACK, path
        assert all(0 <= span.start < span.end <= len(message.text) for span in message.spans), path
        message.text.encode("utf-8", "surrogatepass")
        count += 1
    assert count > 500


def test_messages_read_side_by_side_do_not_mix(corpus: Path) -> None:
    """Good mail and mail made to break parsers, in turns: each is what it is by itself."""
    odd = [path.read_bytes() for path in corpus_files(corpus, "torture", "bounces")]
    real = [path.read_bytes() for path in itertools.islice(itertools.cycle(corpus_files(corpus, "real")), len(odd))]
    raws = [b"", *itertools.chain.from_iterable(zip(odd, real, strict=True))]
    together = read_messages(raws)
    assert len(together) == len(raws)
    for raw, message in zip(raws, together, strict=True):
        alone = read_message(raw)
        assert message == alone
        assert [one.content for one in message.attachments] == [one.content for one in alone.attachments]
    assert read_messages([]) == []
    for message, read in zip(together, read_texts(raws), strict=True):  # without what others know from elsewhere
        assert (read.text, read.spans, read.headers.list_id) == (message.text, message.spans, message.headers.list_id)
        assert (read.attachments, read.events, read.deliveries) == (message.attachments, message.events, message.deliveries)
        assert set(read.defects) <= set(message.defects)


def _is_well_formed(message: EmailMessage) -> bool:
    return all(not part.defects for part in message.walk())


def test_second_opinion_on_well_formed_mail(corpus: Path) -> None:
    """On mail that Python's own parser finds no fault with, both say the same."""
    compared = differing = 0
    for path in some(corpus_files(corpus, "real"), 350):
        raw = path.read_bytes()
        if b"text/calendar" in raw or (b"filename=" in raw and b"filename*=" in raw):
            continue  # we name an invitation, and prefer the extended name
        theirs = email.message_from_bytes(raw, policy=email.policy.default)
        try:
            if raw.startswith(b"From ") or not raw.isascii() or not _is_well_formed(theirs) or theirs["date"].datetime is None:
                continue
            facts = _their_facts(theirs)
        except (AttributeError, IndexError, LookupError, ValueError, TypeError, KeyError):
            continue  # their parser does not survive this one
        ours = read_message(raw)
        if ours.headers.defects:
            continue
        compared += 1
        differing += facts != {
            "subject": " ".join(ours.headers.subject.split()),
            "from": [address.address for address in ours.headers.from_],
            "to": [address.address for address in ours.headers.to],
            "date": ours.headers.date,
            "message_id": ours.headers.message_id,
            "files": [(file.name, file.content) for file in ours.attachments if file.name and not file.is_message],
        }
    assert compared > 100
    assert differing <= compared // 100  # obsolete address forms


def _their_facts(theirs: EmailMessage) -> dict[str, object]:
    date = theirs["date"].datetime
    return {
        "subject": " ".join(str(theirs["subject"] or "").split()),
        "from": [address.addr_spec for address in theirs["from"].addresses],
        "to": [address.addr_spec for address in theirs["to"].addresses] if theirs["to"] else [],
        "date": date.replace(tzinfo=UTC) if date.tzinfo is None else date,
        "message_id": str(theirs["message-id"] or "").strip().strip("<>"),
        "files": [(part.get_filename(), part.get_payload(decode=True)) for part in theirs.walk() if part.get_filename()],
    }


def test_second_opinion_on_the_text(corpus: Path) -> None:
    """Plain text as the standard library decodes it, and as a parser in Rust does."""
    compared, differs_from_stdlib, differs_from_rust = 0, 0, 0
    for path in some(corpus_files(corpus, "real"), 420):
        raw = path.read_bytes()
        if raw.startswith(b"From ") or b"begin " in raw or b"flowed" in raw or not raw.isascii():
            continue
        theirs = email.message_from_bytes(raw, policy=email.policy.default)
        if theirs.get_content_type() != "text/plain" or not _is_well_formed(theirs):
            continue
        try:
            expected = theirs.get_content().split()
            rust = " ".join(fast_mail_parser.parse_email(raw).text_plain).split()
        except (LookupError, ValueError, fast_mail_parser.ParseError):
            continue
        found = read_message(raw).text.split()
        compared += 1
        differs_from_stdlib += found != expected
        differs_from_rust += found != rust
    assert compared > 70
    assert (differs_from_stdlib, differs_from_rust) == (0, 0)


WORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
LINES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@settings(deadline=None, max_examples=40)
@given(
    LINES,
    st.lists(LINES, min_size=1, max_size=5),
    st.lists(st.tuples(WORDS, st.binary(min_size=1, max_size=200)), max_size=3),
    st.sampled_from(["quoted-printable", "base64", "8bit"]),
)
def test_what_python_writes_we_read(subject: str, lines: list[str], files: list[tuple[str, bytes]], encoding: str) -> None:
    written = EmailMessage()
    written["From"] = "a@example.org"
    written["Subject"] = subject
    written.set_content("\n".join(lines), cte=encoding)
    for name, content in files:
        written.add_attachment(content, "application", "octet-stream", filename=f"{name}.bin")
    read = read_message(written.as_bytes(policy=email.policy.SMTP))
    assert "".join(read.headers.subject.split()) == "".join(subject.split())  # their folding loses spaces
    assert read.text.split() == "\n".join(lines).split()
    assert [attachment.content for attachment in read.attachments] == [content for _, content in files]


PIECES = st.sampled_from(
    [
        b"Content-Type: multipart/mixed; boundary=b\n",
        b"Content-Type: multipart/alternative; boundary=bb\n",
        b"--b\n",
        b"--b--\n",
        b"--bb\n",
        b"--bb--\n",
        b"\n",
        b"\r\n",
        b"Content-Type: text/html\n",
        b"Content-Type: message/rfc822\n",
        b"text\n",
        b"<b>x",
        b"Content-Transfer-Encoding: base64\n",
        b"Content-Transfer-Encoding: quoted-printable\n",
        b"aGVsbG8=\n",
        b"=3D=\n",
        b"\xff\xfe",
        b"Content-Type: text/plain; charset=utf-7; format=flowed\n",
        b"begin 644 a\n",
        b"=ybegin line=1 name=a\n",
        b"end\n",
        b"> q \n",
        b"Content-Disposition: attachment; filename*0*=utf-8''%ff; filename*1=b\n",
        b"Subject: =?utf-8?q?=ff?=\n",
        b"-- \n",
        b"\0",
        b"Content-Type: application/pkcs7-mime\n",
        b"Content-Type: text/calendar\n",
        b"BEGIN:VEVENT\n",
        b"END:VEVENT\n",
        b"\r",
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=40))
def test_never_raises_on_shuffled_mail(pieces: list[bytes]) -> None:
    message = read_message(b"".join(pieces))
    for attachment in message.attachments:
        assert len(attachment.content) == attachment.size_bytes
    unmarked(message.text, message.spans)


@settings(deadline=None)
@given(st.binary(max_size=3000))
def test_never_raises_on_bytes(raw: bytes) -> None:
    read_message(raw)


def nested_multiparts(depth: int) -> bytes:
    head = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(depth))
    return b"Subject: deep\n" + head + b"\ninnermost words\n"


def nested_messages(depth: int, size: int) -> bytes:
    return b"Subject: deep\nContent-Type: message/rfc822\n\n" * depth + b"Subject: last\n\n" + b"word " * size


def encoded_messages(depth: int) -> bytes:
    raw = b"Subject: last\n\ninnermost words\n"
    for _ in range(depth):
        raw = b"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(raw)
    return raw


MEGABYTE = 1 << 20
COSTLY = {
    "multiparts": nested_multiparts(1000),
    "messages": nested_messages(1000, 200_000),
    "encoded messages": encoded_messages(20),
    "parts": b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 20_000,
    "almost boundaries": b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--bx\n" * (MEGABYTE // 5),
    "divs": b"Content-Type: text/html\n\n" + b"<div>" * (MEGABYTE // 5) + b"words",
    "fonts and paragraphs": b"Content-Type: text/html\n\n" + b"".join(b"<font size=%d><p>x" % n for n in range(40_000)),
    "attributes": b"Content-Type: text/html\n\n<a " + b" ".join(b"a%d" % n for n in range(100_000)) + b">words</a>",
    "hidden": b"Content-Type: text/html\n\n" + b"<i style='display:none'>" * (MEGABYTE // 24),
    "hidden and closed": b"Content-Type: text/html\n\n" + b"<i style='display:none'>x</i>" * (MEGABYTE // 29),
    "open angles": b"Content-Type: text/html\n\n" + b"<" * MEGABYTE,
    "lists": b"Content-Type: text/html\n\n" + b"<ul><li>x" * (MEGABYTE // 9),
    "quotes": b"\n" + b"> a\nb\n" * (MEGABYTE // 6),
    "attributions": b"\n" + b"On x wrote:\n" * (MEGABYTE // 12),
    "signatures": b"\n" + b"-- \n" * (MEGABYTE // 4),
    "headers in the text": b"\n" + b"From: x\nTo: y\n" * (MEGABYTE // 14) + b"Subject: z\n",
    "uuencode": b"\n" + b"begin 644 x\n" * (MEGABYTE // 12),
    "uuencode with end": b"\n" + b"begin 644 x\n" * (MEGABYTE // 12) + b"end\n",
    "yenc": b"\n" + b"=ybegin name=x\n" * (MEGABYTE // 15),
    "semicolons": b"Content-Type: text/html" + b" ;" * (MEGABYTE // 2) + b"\n\nx",
    "base64 padding": b"Content-Transfer-Encoding: base64\n\n" + b"YQ==" * (MEGABYTE // 4),
    "one line": b"\n" + b"a" * (8 * MEGABYTE),
    "calendar": b"Content-Type: text/calendar\n\n" + b"BEGIN:VEVENT\nEND:VEVENT\n" * (MEGABYTE // 24),
    "flowed": b"Content-Type: text/plain; format=flowed\n\n" + b"a \n" * (MEGABYTE // 3),
    "punycode": b"Content-Type: text/plain; charset=punycode\n\n" + b"a" * MEGABYTE,
}


@pytest.mark.parametrize("raw", COSTLY.values(), ids=COSTLY.keys())
def test_costly_mail_is_read_in_time(raw: bytes) -> None:
    started = time.process_time()
    read_message(raw)
    assert time.process_time() - started < 2 * SLACK  # quadratic would be minutes


def test_fifty_levels_are_read_and_more_are_named() -> None:
    assert "innermost words" in read_message(nested_multiparts(limits.DEPTH - 1)).text
    assert "too_deep" in read_message(nested_multiparts(limits.DEPTH + 5)).defects


def test_too_many_parts_are_named() -> None:
    message = read_message(b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * (limits.PARTS + 10))
    assert "too_many_parts" in message.defects


def test_half_a_surrogate_pair_in_utf_7_does_not_stop_the_reading() -> None:
    for kind in (b"html", b"plain"):
        message = read_message(b"Content-Type: text/" + kind + b"; charset=utf-7\n\none +2AA- two")
        assert message.text.split()[0] == "one"
        assert message.text.split()[-1] == "two"
        message.text.encode("utf-8")
