"""The header read: ordinary mail, and every kind of mail that has no right to exist."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.mail import limits
from archiver.mail.header.addresses import Address
from archiver.mail.header.headers import read_headers

PLAIN = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: "Doe, Jane" <jane@example.org>, bob@example.org
Cc: friends: carl@example.org, dora@example.org;
Subject: =?iso-8859-1?Q?Gr=FC=DFe?= from
 =?utf-8?b?w6Q=?= =?utf-8?b?w7Y=?=
Date: Mon, 2 Mar 2020 10:00:00 +0100
Received: from a by b; Mon, 2 Mar 2020 10:00:07 +0100
Received: from c by a; Mon, 2 Mar 2020 09:00:00 +0100
Message-ID: <one@example.org>
References: <zero@example.org>
 <half@example.org>
In-Reply-To: <half@example.org>
List-Id: The List <the-list.example.org>
Content-Type: multipart/mixed; boundary=x

From: body@example.org
"""


def test_an_ordinary_message() -> None:
    headers = read_headers(PLAIN)
    assert headers.from_ == (Address("Jürgen", "j@example.org"),)
    assert headers.to == (Address("Doe, Jane", "jane@example.org"), Address("", "bob@example.org"))
    assert headers.cc == (Address("", "carl@example.org", "friends"), Address("", "dora@example.org", "friends"))
    assert headers.subject == "Grüße from äö"
    assert headers.date == datetime(2020, 3, 2, 9, 0, tzinfo=UTC)
    assert headers.first_received == datetime(2020, 3, 2, 9, 0, 7, tzinfo=UTC)
    assert headers.message_id == "one@example.org"
    assert headers.references == ("zero@example.org", "half@example.org")
    assert headers.in_reply_to == ("half@example.org",)
    assert headers.list_id == "the-list.example.org"
    assert headers.content_type == "multipart/mixed"
    assert headers.has_attachments
    assert headers.header_bytes == PLAIN.index(b"From: body")
    assert headers.defects == ()


@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_line_ends_do_not_matter(line_end: bytes) -> None:
    assert read_headers(PLAIN.replace(b"\n", line_end)).recipients == read_headers(PLAIN).recipients


def test_a_prefix_is_enough() -> None:
    whole, prefix = read_headers(PLAIN + b"x" * 100_000), read_headers(PLAIN[:-10])
    assert whole == prefix


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"\r\n\r\n", b"\0" * 1000, b"just text\nwithout a header\n", b":", b"a:\n", b"\xff\xfe"]
)
def test_no_header_at_all(raw: bytes) -> None:
    headers = read_headers(raw)
    assert (headers.message_id, headers.subject, headers.from_, headers.date) == ("", "", (), None)
    assert headers.content_type == "text/plain"


def test_raw_8bit_in_two_charsets() -> None:
    assert read_headers("Subject: Größe".encode()).subject == "Größe"
    headers = read_headers("Subject: Größe und Straße".encode("latin-1"))
    assert headers.subject == "Größe und Straße"
    assert "raw_8bit_header" in headers.defects


def test_postmark_blank_and_junk_lines() -> None:
    for raw in (b"From me Thu Jan  1 1998\n" + PLAIN, b"\r\n\r\n" + PLAIN, b"\xef\xbb\xbf" + PLAIN):
        assert read_headers(raw).message_id == "one@example.org"
    headers = read_headers(PLAIN.replace(b"Date:", b"this is junk\nDate:"))
    assert headers.date is not None
    assert "junk_in_header" in headers.defects


def test_a_missing_blank_line_ends_the_header_at_the_text() -> None:
    raw = b"From: a@example.org\r\nX-Long: a\r\n b\r\nDear all,\r\nhello\r\n\r\nbye"
    headers = read_headers(raw)
    assert headers.header_bytes == raw.index(b"Dear")
    assert "no_blank_line_after_header" in headers.defects


def test_an_unreadable_date_is_named_and_not_now() -> None:
    headers = read_headers(b"Date: soon\nReceived: by x; Mon, 2 Mar 2020 10:00:07 +0100\n\n")
    assert headers.date is None
    assert headers.first_received == datetime(2020, 3, 2, 9, 0, 7, tzinfo=UTC)
    assert "unreadable_date: soon" in headers.defects


def test_fifty_thousand_recipients() -> None:
    people = [f'"Person, {n}" <p{n}@example.org>' for n in range(50_000)]
    headers = read_headers(("To: " + ",\n ".join(people) + "\nSubject: all\n\n").encode())
    assert len(headers.to) == 50_000
    assert headers.to[-1] == Address("Person, 49999", "p49999@example.org")
    assert headers.subject == "all"


def test_a_header_larger_than_the_limit() -> None:
    raw = b"Subject: here\nX: " + b"x" * (limits.HEADER_BYTES + 10) + b"\nTo: late@example.org\n\n"
    headers = read_headers(raw)
    assert headers.subject == "here"
    assert "header_too_large" in headers.defects


SIZE = 2 << 20
HOSTILE = {
    "quotes": b"To: " + b'"' * SIZE,
    "escaped quotes": b"To: " + b'"\\' * (SIZE // 2),
    "comments": b"To: " + b"(" * SIZE,
    "closed comments": b"To: " + b"()" * (SIZE // 2),
    "angles": b"To: " + b"<" * SIZE,
    "angle quotes": b"To: " + b'<"' * (SIZE // 2),
    "spaces": b"To: " + b" " * SIZE + b"a@b",
    "commas": b"To: " + b"," * SIZE,
    "colons": b"To: " + b"a:" * (SIZE // 2),
    "words": b"Subject: " + b"=?a?q? " * (SIZE // 7),
    "words in to": b"To: " + b"=?a?q? " * (SIZE // 7),
    "empty words": b"To: " + b"=?utf-8?q??=" * (SIZE // 12),
    "folds": b"To: " + b"\n " * (SIZE // 2),
    "junk": b"From: x\n" + b"junk\n" * (SIZE // 5),
    "fields": b"a:\n" * (SIZE // 3),
    "references": b"References: " + b"<a@b" * (SIZE // 4),
    "brackets": b"To: a@" + b"[" * SIZE,
    "brackets and spaces": b"To: " + b"[ " * (SIZE // 2),
    "date": b"Date: " + b"1 " * (SIZE // 2),
    "colons after ats": b"To: " + b"a@:" * (SIZE // 3),
    "ats": b"To: " + b"@" * SIZE,
    "blank lines": b"\n" * SIZE,
}


@pytest.mark.slow
@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers_cost_linear_time(raw: bytes) -> None:
    started = time.process_time()
    read_headers(raw)
    assert time.process_time() - started < 5  # quadratic would be minutes


@given(st.binary(max_size=2000))
def test_never_raises(raw: bytes) -> None:
    read_headers(raw)


TEXT = st.text(alphabet=st.sampled_from('ab @<>(),;:"\\[]=?QBqb\n\tä\0.-0123456789+'), max_size=200)


@given(
    st.sampled_from(["From", "To", "Subject", "Date", "Received", "References", "Message-ID", "Content-Type", "List-Id"]), TEXT
)
def test_never_raises_on_strange_values(name: str, value: str) -> None:
    read_headers(f"{name}: {value}\n\n".encode())
    read_headers(f"{name}: {value}\n\n".encode("latin-1"))


def test_the_whole_corpus(corpus: Path) -> None:
    slowest = 0.0
    for path in sorted(corpus.glob("public/**/*")):
        if path.is_file() and path.suffix not in (".pst", ".ost"):
            raw = path.read_bytes()
            started = time.process_time()
            read_headers(raw)
            slowest = max(slowest, time.process_time() - started)
    assert slowest < 1


@pytest.mark.parametrize(
    ("header", "author"),
    [
        (b"From: Robot:;\nSender: a@b.c\n", "a@b.c"),
        (b"From: Robot:;\n", "Robot"),
        (b"From: Ann Lee :; <ann@x.y>\n", "ann@x.y"),
        (b"From: ann@x.y:;\n", "ann@x.y"),
        (b'From: "ann@x.y": ;\n', "ann@x.y"),
        (b"From: Ann <ann@x.y>:;\n", "Ann <ann@x.y>"),
        (b"From: =?utf-8?q?ann=40x.y?=:;\n", "ann@x.y"),
        (b'From: "Ann Lee (ann@x.y)":;\n', "Ann Lee <ann@x.y>"),
        (b"From: Team: Ann <ann@x.y>, bob@x.y;\nSender: c@d.e\n", "Ann <ann@x.y>"),
        (b"From: Ann\nSender: a@b.c\n", "a@b.c"),
        (b"From: Pete(A nice chap) <pete(his account)@silly.test(his host)>\n", "Pete <pete@silly.test>"),
        (b"From: =?utf-8?q?=22Ann_Lee=22_=3Cann=40x=2Ey=3E?=\nSender: a@b.c\n", "Ann Lee <ann@x.y>"),
    ],
)
def test_the_author_has_an_address_if_there_is_one(header: bytes, author: str) -> None:
    """RFC 6854 allows an empty group in From; programs put the address in its name, beside it, or in Sender."""
    assert str(read_headers(header + b"\n").author) == author
