"""The rows of many messages at once are those of each of them."""

import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.mail import limits
from archiver.mail.defects import Defects
from archiver.mail.header.fields import split_block
from archiver.mail.header.headers import headers_of, read_headers
from archiver.store.content import MemoryContent
from archiver.sync.ingest.rows import Mail, describe, describe_all, header_bytes

AT = datetime(2020, 3, 4, tzinfo=UTC)
RAW = (
    b"From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: Re: one\nDate: Mon, 2 Mar 2020 09:00:00 +0100\n\nHello\n",
    b"",
    b"Received: by mx.example.org; Tue, 3 Mar 2020 10:00:00 +0000\nSubject: two\nCc: c@example.org, d@example.org\n\n\xff",
    b"no header at all",
)


def test_each_has_its_own_rows() -> None:
    mails: list[Mail] = [
        (MemoryContent(raw), hashlib.sha256(raw).digest(), received_at) for raw in RAW for received_at in (None, AT)
    ]
    rows = describe_all(mails)
    assert rows == [describe(*mail) for mail in mails]
    assert [row.sha256 for row in rows] == [sha256 for _, sha256, _ in mails]
    assert [row.message["subject"] for row in rows[::2]] == ["Re: one", None, "two", None]
    assert len({row.message["canonical_sha256"] for row in rows}) == len(RAW)
    assert [row.message["thread_subject"] is None for row in rows[::2]] == [False, True, False, True]
    assert [len(row.participants) for row in rows[::2]] == [2, 0, 2, 0]


def test_the_server_knows_better_when_it_came_but_a_message_is_sorted_by_what_is_in_it() -> None:
    told, untold = (describe(MemoryContent(RAW[2]), hashlib.sha256(RAW[2]).digest(), at).message for at in (AT, None))
    first_received = datetime(2020, 3, 3, 10, tzinfo=UTC)
    assert (told["received_at"], untold["received_at"]) == (AT, first_received)
    for row in (told, untold):
        assert (row["sort_at"], row["date_origin"]) == (first_received, "received")


@pytest.mark.parametrize("before", [b"", b"From ann@example.org Mon Mar  2 09:00:00 2020\n", b"\n\n", b"\xef\xbb\xbf"])
def test_a_header_over_the_limit_is_noted_whatever_stands_before_it(before: bytes) -> None:
    raw = before + b"Subject: large\nX: " + b"x" * limits.HEADER_BYTES + b"\n\nbody\n"
    assert "header_too_large" in read_headers(header_bytes(MemoryContent(raw))).defects


def test_no_mail_no_rows() -> None:
    assert describe_all([]) == []


BITS = [
    b"From a@b Thu Jan  1 1998\n",
    b">From x\r\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"Subject: x\n",
    b"X-Odd: y\r\n z\r\n",
    b"To: a@example.org\n",
    b"to : b@example.org\n",
    b"text",
    b": ",
    b"a:b",
    b"\xef\xbb\xbf",
    b"\xfc",
]


@given(st.lists(st.sampled_from(BITS), max_size=20))
def test_what_is_given_to_the_reader_says_the_same_as_the_whole_message(bits: list[bytes]) -> None:
    raw = b"".join(bits)
    short, whole = read_headers(header_bytes(MemoryContent(raw))), read_headers(raw)
    assert {**_values(short), "header_bytes": 0} == {**_values(whole), "header_bytes": 0}


@given(st.lists(st.sampled_from(BITS), max_size=20))
def test_fields_that_nobody_wants_make_no_difference(bits: list[bytes]) -> None:
    raw, defects = b"".join(bits), Defects()
    assert read_headers(raw) == headers_of(split_block(raw, defects), defects)


def _values(headers: object) -> dict[str, object]:
    return {name: getattr(headers, name) for name in headers.__slots__}  # type: ignore[attr-defined]
