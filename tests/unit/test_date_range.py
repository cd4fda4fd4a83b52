"""Each date that the archive may hold can be shown, sorted and searched for in each time zone."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import pytest

from archiver.date_range import END, FIRST, archivable
from archiver.db.engine import TolerantTimestamps
from archiver.http.catalogue import Texts
from archiver.http.formats import ago, long_date, short_date
from archiver.search.query.compiler import compile_query
from archiver.search.query.errors import QueryError
from archiver.search.query.parser import parse
from archiver.search.tokens import month_token, year_of, year_token
from connectors.selection import SourceSettings, date_rule
from tests.unit.search.test_query_compiler import KnownNames

EAST, WEST = timezone(timedelta(hours=23, minutes=59)), timezone(timedelta(hours=-23, minutes=-59))
ZONES = [EAST, WEST, *(ZoneInfo(name) for name in sorted(available_timezones()))]
NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (datetime(2026, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 6, 1, 12, tzinfo=UTC)),
        (datetime(2026, 6, 1), datetime(2026, 6, 1, tzinfo=UTC)),
        (FIRST, FIRST),
        (FIRST - timedelta(microseconds=1), None),
        (END - timedelta(microseconds=1), END - timedelta(microseconds=1)),
        (END, None),
        (datetime(1, 1, 1, tzinfo=EAST), None),
        (datetime(9999, 12, 31, 23, tzinfo=WEST), None),
        (datetime(1970, 1, 1, 10, tzinfo=EAST), None),
        (datetime(1969, 12, 31, 20, tzinfo=WEST), datetime(1970, 1, 1, 19, 59, tzinfo=UTC)),
    ],
)
def test_archivable(given: datetime | None, expected: datetime | None) -> None:
    assert archivable(given) == expected
    assert archivable(given) is None or archivable(given).tzinfo is UTC  # type: ignore[union-attr]


@pytest.mark.parametrize("at", [FIRST, END - timedelta(microseconds=1), datetime(2000, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("language", ["en", "de"])
def test_pages_show_them_in_every_zone(at: datetime, language: str) -> None:
    texts = Texts(language)
    for zone in ZONES:
        assert str(at.astimezone(zone).year) in short_date(texts, at, zone, NOW)
        assert str(at.astimezone(zone).year) in long_date(texts, at, zone)
        assert ago(texts, at, NOW)
        assert year_of(year_token(at), zone) in (at.year - 1, at.year, at.year + 1)
    assert month_token(at) == f"{at:%Y-%m}"


@pytest.mark.parametrize(
    "query", ["after:0001-01-01", "before:9999-12-31", "on:9999", "on:0001", "before:9998-12", "after:1970"]
)
def test_queries_for_any_day_in_every_zone(query: str) -> None:
    """An answer, or an error that says what is wrong with the query."""
    for zone in ZONES:
        with suppress(QueryError):
            compile_query(parse(query, NOW, zone), query, KnownNames(), None)


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=EAST), datetime(9999, 12, 31, 23, tzinfo=WEST)])
def test_the_rule_on_dates_takes_what_a_server_says(at: datetime) -> None:
    settings = SourceSettings(date_from=date(2020, 1, 1))
    assert (date_rule(settings, at) is None) == (at.year == 9999)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (b"2026-06-01 12:00:00+00", datetime(2026, 6, 1, 12, tzinfo=UTC)),
        (b"infinity", END - timedelta(seconds=1)),
        (b"-infinity", FIRST),
        (b"20000-01-01 00:00:00+00", END - timedelta(seconds=1)),
        (b"0005-01-01 00:00:00+00 BC", FIRST),
    ],
)
def test_rows_of_others_are_read(stored: bytes, read: datetime) -> None:
    assert TolerantTimestamps(1184).load(stored) == read
