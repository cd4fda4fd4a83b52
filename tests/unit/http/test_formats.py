"""How values look."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from archiver.http.catalogue import Texts
from archiver.http.formats import ago, duration, highlight, highlight_near_mark, long_date, month, short_date, size
from archiver.search.snippets import MatchedText


def test_a_passage_begins_shortly_before_its_first_mark() -> None:
    text = "Dear reader, after many words of greeting the order was sent, & the order is paid"
    first, second = text.index("order"), text.rindex("order")
    passage = MatchedText(text, ((first, first + 5), (second, second + 5)))
    assert highlight_near_mark(passage) == "…the <mark>order</mark> was sent, &amp; the <mark>order</mark> is paid"


def test_a_passage_with_an_early_mark_or_none_is_shown_whole() -> None:
    early, without = MatchedText("An order <b>", ((3, 8),)), MatchedText("no mark at all in this long passage of text")
    for passage in (early, without, MatchedText()):
        assert highlight_near_mark(passage) == highlight(passage)
    assert highlight_near_mark(MatchedText("x" * 90 + " order", ((91, 96),))) == "…<mark>order</mark>"
    assert highlight(early) == "An <mark>order</mark> &lt;b&gt;"


@pytest.mark.parametrize(
    ("language", "count", "expected"),
    [
        ("en", 0, "0 bytes"),
        ("en", 1, "1 byte"),
        ("en", 999, "999 bytes"),
        ("en", 1000, "1.0 kB"),
        ("en", 123_456, "123 kB"),
        ("en", 10**19, "10,000 PB"),
        ("de", 1, "1 Byte"),
        ("de", 1500, "1,5 kB"),
        ("fr", 1500, "1,5 ko"),
    ],
)
def test_a_size_has_the_unit_that_fits(language: str, count: int, expected: str) -> None:
    assert size(Texts(language), count) == expected


NOW = datetime(2026, 6, 28, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("language", "today", "this_year", "earlier", "whole", "by_month"),
    [
        ("en", "13:30", "3 Jan", "31 Dec 2024", "Tue, 31 Dec 2024, 15:05", "Dec 2024"),
        ("de", "13:30", "3. Jan.", "31. Dez. 2024", "Di., 31. Dez. 2024, 15:05", "Dez. 2024"),
        ("fr", "13:30", "3 janv.", "31 déc. 2024", "mar. 31 déc. 2024, 15:05", "déc. 2024"),
        ("es", "13:30", "3 ene", "31 dic 2024", "mar, 31 dic 2024, 15:05", "dic 2024"),
    ],
)
def test_dates_as_each_language_writes_them(
    language: str, today: str, this_year: str, earlier: str, whole: str, by_month: str
) -> None:
    t, old = Texts(language), datetime(2024, 12, 31, 14, 5, tzinfo=UTC)
    assert short_date(t, NOW.replace(hour=11, minute=30), BERLIN, NOW) == today
    assert short_date(t, datetime(2026, 1, 2, 23, 30, tzinfo=UTC), BERLIN, NOW) == this_year
    assert short_date(t, old, BERLIN, NOW) == earlier
    assert long_date(t, old, BERLIN) == whole
    assert month(t, old.date()) == by_month


@pytest.mark.parametrize(
    ("language", "delta", "expected"),
    [
        ("en", timedelta(seconds=-59), "just now"),
        ("en", timedelta(seconds=20), "in a moment"),
        ("en", timedelta(minutes=-1, seconds=-59), "1 minute ago"),
        ("en", timedelta(hours=23, minutes=59), "in 23 hours"),
        ("en", timedelta(days=-400), "400 days ago"),
        ("de", timedelta(days=-1), "vor 1 Tag"),
        ("de", timedelta(days=3), "in 3 Tagen"),
        ("fr", timedelta(hours=-2), "il y a 2 heures"),
        ("es", timedelta(minutes=-5), "hace 5 minutos"),
    ],
)
def test_times_before_and_after_now(language: str, delta: timedelta, expected: str) -> None:
    assert ago(Texts(language), NOW + delta, NOW) == expected


def test_durations_and_numbers() -> None:
    assert duration(Texts("de"), 1.25) in ("1,2 s", "1,3 s")
    assert duration(Texts("en"), 3725) == "1 h 02 min"
    assert [Texts(one).number(1234567) for one in ("en", "de", "es")] == ["1,234,567", "1.234.567", "1.234.567"]
    assert Texts("fr").number(1234567).split() == ["1", "234", "567"]  # narrow spaces
