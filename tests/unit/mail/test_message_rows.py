"""The rows of many messages at once are those of each of them."""

import hashlib
from datetime import UTC, datetime

from archiver.services.message_rows import Mail, describe, describe_all
from archiver.store.content import Memory

AT = datetime(2020, 3, 4, tzinfo=UTC)
RAW = (
    b"From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: Re: one\nDate: Mon, 2 Mar 2020 09:00:00 +0100\n\nHello\n",
    b"",
    b"Received: by mx.example.org; Tue, 3 Mar 2020 10:00:00 +0000\nSubject: two\nCc: c@example.org, d@example.org\n\n\xff",
    b"no header at all",
)


def test_each_has_its_own_rows() -> None:
    mails: list[Mail] = [(Memory(raw), hashlib.sha256(raw).digest(), received_at) for raw in RAW for received_at in (None, AT)]
    rows = describe_all(mails)
    assert rows == [describe(*mail) for mail in mails]
    assert [row.sha256 for row in rows] == [sha256 for _, sha256, _ in mails]
    assert [row.message["subject"] for row in rows[::2]] == ["Re: one", None, "two", None]
    assert len({row.message["canonical_sha256"] for row in rows}) == len(RAW)
    assert [row.message["thread_subject"] is None for row in rows[::2]] == [False, True, False, True]
    assert [len(row.participants) for row in rows[::2]] == [2, 0, 2, 0]


def test_the_server_knows_better_when_it_came_than_the_first_received() -> None:
    told, untold = (describe(Memory(RAW[2]), hashlib.sha256(RAW[2]).digest(), at).message for at in (AT, None))
    assert (told["received_at"], told["date_origin"]) == (AT, "server")
    assert (untold["received_at"], untold["date_origin"]) == (datetime(2020, 3, 3, 10, tzinfo=UTC), "received")


def test_no_mail_no_rows() -> None:
    assert describe_all([]) == []
