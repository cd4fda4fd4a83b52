"""Finding in a file, its neighbours, honest names; the steps of a mail's path; cards of invitations."""

from __future__ import annotations

from datetime import UTC, date
from zoneinfo import ZoneInfo

import pytest

from archiver.extract.extraction import TextPage
from archiver.http.catalogue import Texts
from archiver.http.file_view import find_in_pages, honest_name, kind_of, mark, neighbours
from archiver.http.invitations import describe_event
from archiver.http.mail_route import field_name, steps_of
from archiver.mail.formats.calendar import Event
from archiver.mail.header.route import Hop


def test_pages_that_have_the_words() -> None:
    pages = [TextPage(1, "Nothing here"), TextPage(2, "The Price\n list, a price list"), TextPage(3, "price list", "a.zip/b")]
    found = find_in_pages(pages, " price LIST ")
    assert [(one.number, one.inside, one.count) for one in found] == [(2, "", 2), (3, "a.zip/b", 1)]
    assert find_in_pages(pages, "  ") == find_in_pages(pages, "(.*") == []
    shown = mark("A price list", "price list")
    assert [shown.text[start:end] for start, end in shown.marks] == ["price list"]


def test_the_files_before_and_after() -> None:
    assert neighbours([0, 2, 5], 2) == (0, 5)
    assert neighbours([0, 2, 5], 0) == (None, 2)
    assert neighbours([0, 2, 5], 4) == (None, None)


def test_names_and_kinds() -> None:
    assert honest_name("invoice\u202efdp.exe") == "invoicefdp.exe"
    assert [kind_of(*one) for one in (("application/octet-stream", "A.PDF"), ("image/png", ""), ("x/y", "z"))] == [
        "pdf",
        "image",
        "file",
    ]


def hop(at: str) -> Hop:
    return Hop("a", "", "b", "SMTP", at, is_encrypted=False)


def test_delays_between_servers() -> None:
    times = ("2026-01-01T10:00:00+00:00", "", "2026-01-01T10:10:00+00:00", "2026-01-01T10:09:00+00:00", "rubbish")
    steps = steps_of([hop(at) for at in times])
    assert [step.delay_seconds for step in steps] == [None, None, 600.0, -60.0, None]
    assert [step.share for step in steps] == [0, 0, 1, 0, 0]
    assert [step.is_slow for step in steps] == [False, False, True, False, False]
    assert steps_of([]) == []


def test_names_of_fields() -> None:
    assert [field_name(one) for one in ("message-id", "dkim-signature", "x")] == ["Message-ID", "DKIM-Signature", "X"]


@pytest.mark.parametrize(
    ("start", "end", "when", "written"),
    [
        ("2026-07-03 09:00 America/New_York", "2026-07-03 10:30 America/New_York", "Fri, 3 Jul 2026, 15:00–16:30", True),
        ("2026-07-03 09:00 UTC", "2026-07-04 10:30 UTC", "Fri, 3 Jul 2026, 11:00 – Sat, 4 Jul 2026, 12:30", True),
        ("2026-07-03 09:00 Europe/Berlin", "", "Fri, 3 Jul 2026, 09:00", False),
        ("2026-07-03", "2026-07-04", "Fri, 3 Jul 2026", False),
        ("2026-07-03 09:00 Nowhere/Land", "", "Fri, 3 Jul 2026, 09:00", True),
        ("sometime", "", "sometime", False),
        ("2026-99-99", "", "2026-99-99", False),
        ("9999-12-31 23:59 America/New_York", "", "9999-12-31 23:59 America/New_York", False),
        ("", "", "", False),
    ],
)
def test_when_it_is_for_the_reader(start: str, end: str, when: str, written: bool) -> None:
    event = Event("REQUEST", "x", start, end, "", "", "", (), "")
    card = describe_event(Texts("en"), event, ZoneInfo("Europe/Berlin"))
    assert (card.when, bool(card.as_written)) == (when, written)


def test_the_day_on_the_leaf_is_the_readers() -> None:
    event = Event("NONSENSE", "x", "2026-07-03 23:30 America/New_York", "", "", "", "", (), "")
    card = describe_event(Texts("en"), event, UTC)
    assert (card.method, card.day) == ("publish", date(2026, 7, 4))
