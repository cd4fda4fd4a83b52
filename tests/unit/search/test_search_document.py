"""The document of a message: what can be asked for, in pieces that an engine keeps whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from archiver.db.ids import message_uuid
from archiver.extract.extraction import TextPage
from archiver.mail.message import read_message
from archiver.search.document import (
    GENERATION,
    INDEX_SETTINGS,
    FileText,
    IndexedCopy,
    Inputs,
    Participant,
    build_document,
    place_of,
)
from archiver.search.file_types import kind_of
from archiver.search.pieces import POSITIONS, Pieces, positions, split_long
from archiver.search.tokens import copy_token, token, year_of, year_token
from archiver.search.words import words

MAILBOX, SOURCE = UUID(int=7), UUID(int=8)
RAW = b"""From: Alice Smith <alice.smith@mail.corp.com>\r
To: Bob <bob@example.org>\r
Subject: Re: Quarterly r\xc3\xa9sum\xc3\xa9\r
Message-ID: <1@corp.com>\r
In-Reply-To: <0@corp.com>\r
List-Id: Developers <dev.lists.corp.com>\r
Content-Type: multipart/mixed; boundary=x\r
\r
--x\r
Content-Type: text/plain\r
\r
Fresh words here.\r
\r
> Stale words there.\r
> And more.\r
\r
Another fresh line.\r
--x\r
Content-Type: application/pdf; name="Invoice 7.pdf"\r
Content-Disposition: attachment; filename="Invoice 7.pdf"\r
\r
%PDF\r
--x--\r
"""


def make(**changes: Any) -> dict[str, Any]:
    sha256 = bytes(range(32))
    values: dict[str, Any] = {
        "id": message_uuid(sha256),
        "version": 3,
        "sha256": sha256,
        "sort_at": datetime(2024, 5, 6, 7, 8, 9, 654321, tzinfo=UTC),
        "size_bytes": len(RAW),
        "message": read_message(RAW),
        "internet_message_id": "1@corp.com",
        "thread_id": UUID(int=5),
        "sender": "alice.smith@mail.corp.com",
        "subject": "Re: Quarterly résumé",
        "people": [
            Participant("from", "alice.smith@mail.corp.com", "Alice Smith"),
            Participant("to", "bob@example.org", "Bob"),
        ],
        "copies": [IndexedCopy(MAILBOX, SOURCE, "INBOX", ("Work/Été",))],
    }
    return build_document(Inputs(**{**values, **changes}))


def test_a_document_holds_everything_that_can_be_asked_for() -> None:
    document = make()
    assert document["subject_is"] == ["re", "quarterly", "resume"]
    assert document["from_is"][:2] == ["alice.smith@mail.corp.com", "@mail.corp.com"]
    assert set(document["from_is"][2:]) == {"alice", "smith", "mail", "corp", "com"}
    assert (document["sender"], document["domain"], document["year"]) == ("alice.smith@mail.corp.com", "mail.corp.com", "2024")
    assert document["list"] == ["dev.lists.corp.com", "dev"]
    assert (document["has"], document["kinds"]) == (["attachment"], ["pdf"])
    assert document["types"] == ["pdf", "application/pdf", "application"]
    assert document["filename_is"] == ["invoice", "7", "pdf", ".pdf"]
    assert document["folder"] == [f"{MAILBOX}/INBOX"]
    assert document["label"] == [f"{MAILBOX}/Work/Été"]
    assert document["hashes"] == [bytes(range(32)).hex()]
    assert document["date"] == 1714979289
    assert json.loads(json.dumps(document)) == document


def test_new_text_comes_before_quoted_text_and_passages_stay_apart() -> None:
    document = make()
    assert [passage.strip() for passage in document["text_01"]] == ["Fresh words here.", "Another fresh line."]
    assert "Stale words there." in document["text_02"]
    assert "text_03" not in document


def test_every_attribute_is_known_to_the_settings() -> None:
    known = {
        *INDEX_SETTINGS["searchableAttributes"],
        *INDEX_SETTINGS["filterableAttributes"],
        "version",
        "pages",
        "cut",
        "order",
    }
    pages = (TextPage(1, "one"), TextPage(2, "two"))
    assert set(make(files=[FileText("a.pdf", "application/pdf", b"x" * 32, pages)])) <= known
    assert len(GENERATION) == 12


def test_a_match_is_mapped_back_to_its_page() -> None:
    pages = (TextPage(1, "été " * 3), TextPage(2, ""), TextPage(3, "third"), TextPage(0, "inside", "notes.txt"))
    document = make(files=[FileText("Invoice 7.pdf", "application/pdf", b"x" * 32, pages)])
    text = document["text_03"]
    assert place_of(document, "text_03", 0) == ("Invoice 7.pdf", 1)
    assert place_of(document, "text_03", len(text[: text.index("third")].encode())) == ("Invoice 7.pdf", 3)
    assert place_of(document, "text_03", len(text[: text.index("inside")].encode())) == ("Invoice 7.pdf/notes.txt", 0)
    assert place_of(document, "text_01", 0) is None
    assert document["hashes"][1] == (b"x" * 32).hex()


def test_long_text_is_cut_between_words_and_nothing_falls_off() -> None:
    text = " ".join(f"word{number}" for number in range(150_000))
    parts = [part for part, _ in split_long(text)]
    assert all(positions(part) <= POSITIONS for part in parts)
    assert {word for part in parts for word in words(part)} == set(words(text))
    for before, after in pairwise(parts):
        assert " ".join(after.split()[:20]) in before


def test_a_page_that_is_cut_is_the_same_page_in_both_pieces() -> None:
    pages = (TextPage(1, "first"), TextPage(2, "long " * 70_000), TextPage(3, "third"))
    document = make(files=[FileText("a.pdf", "application/pdf", b"x" * 32, pages)])
    assert place_of(document, "text_04", 0) == ("a.pdf", 2)
    assert place_of(document, "text_04", len(document["text_04"]) - 1) == ("a.pdf", 3)


def test_what_does_not_fit_at_all_is_said() -> None:
    pages = tuple(TextPage(number, "." * 8_000 + "x") for number in range(1, 101))
    assert make(files=[FileText("a.pdf", "application/pdf", b"x" * 32, pages)])["cut"] is True
    assert "cut" not in make()


def test_pathological_text_is_cut_in_reasonable_steps() -> None:
    for text in ("a." * 100_000, "x" * 1_000_000, "漢" * 150_000):
        parts = [part for part, _ in split_long(text)]
        assert all(positions(part) <= POSITIONS for part in parts)
        assert len(parts) < 60


def test_passages_share_a_piece_until_it_is_full() -> None:
    pieces = Pieces()
    for _ in range(3):
        pieces.add("word " * 25_000)
    assert [len(text) if isinstance(text, list) else 1 for text in pieces.texts()] == [2, 1]


@pytest.mark.parametrize(
    ("at", "zone", "year"),
    [
        ("2023-12-31T22:59:59", "Europe/Berlin", 2023),
        ("2023-12-31T23:00:00", "Europe/Berlin", 2024),
        ("2024-01-01T04:59:59", "America/New_York", 2023),
        ("2023-12-31T18:15:00", "Asia/Kathmandu", 2024),
        ("2023-12-31T18:14:59", "Asia/Kathmandu", 2023),
        ("2023-12-31T10:00:00", "Pacific/Kiritimati", 2024),
        ("2024-07-01T00:00:00", "Asia/Kolkata", 2024),
    ],
)
def test_a_year_is_that_of_the_users_zone(at: str, zone: str, year: int) -> None:
    assert year_of(year_token(datetime.fromisoformat(at).replace(tzinfo=UTC)), ZoneInfo(zone)) == year


def test_tokens_need_no_escapes_and_have_a_length_that_engines_keep() -> None:
    assert token("a\"b\\c'd%") == "a%22b%5cc%27d%25"
    assert token("e\u0301t") == "ét"
    long = "ü" * 500
    assert len(token(long).encode()) < 240
    assert token(long) != token(long + "x")
    assert copy_token(MAILBOX, "A/B") == f"{MAILBOX}/A/B"


def test_kinds_of_files() -> None:
    assert kind_of("application/octet-stream", "Report.XLSX") == "spreadsheet"
    assert kind_of("image/png", "") == "image"
    assert kind_of("text/plain", "patch.zip") == "archive"
    assert kind_of("text/plain", "") == "text"
    assert kind_of("application/octet-stream", "x") == "other"
