"""Dates in every spelling that occurs, and the choice between several."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.mail.dates import DatedBy, DateOrigin, choose_date, parse_date, sort_date

SPELLINGS = {
    "Mon, 2 Mar 2020 10:11:12 +0100": "2020-03-02 09:11:12",
    "2 Mar 2020 10:11 -0330": "2020-03-02 13:41:00",
    "Mon, 02 Mar 2020 10:11:12 GMT": "2020-03-02 10:11:12",
    "Mon, 02 Mar 2020 10:11:12 +0100 (CET)": "2020-03-02 09:11:12",
    "Mon, 2 Mar 2020 10:11:12 EST": "2020-03-02 15:11:12",
    "Mon, 2 Mar 2020 10:11:12 (PDT)": "2020-03-02 17:11:12",
    "Mon, 2 Jul 2001 10:11:12 MESZ": "2001-07-02 08:11:12",
    "Mon, 2 Mar 98 10:11:12 +0000": "1998-03-02 10:11:12",
    "Mon, 2 Mar 05 10:11:12 +0000": "2005-03-02 10:11:12",
    "Mon, 2 Mar 103 10:11:12 +0000": "2003-03-02 10:11:12",
    "Thu Jan  1 02:03:04 1998": "1998-01-01 02:03:04",
    "Thu Jan  1 02:03:04 EST 1998": "1998-01-01 07:03:04",
    "Thursday, January 1, 1998 2:03 PM": "1998-01-01 14:03:00",
    "1998-01-02T03:04:05Z": "1998-01-02 03:04:05",
    "1998-01-02T03:04:05.678+02:00": "1998-01-02 01:04:05",
    "1998/01/02 03:04:05": "1998-01-02 03:04:05",
    "20200302T101112": "2020-03-02 10:11:12",
    "06-23-2026": "2026-06-23 00:00:00",
    "06/23/2026 10:00 AM": "2026-06-23 10:00:00",
    "23.06.2026 10:11": "2026-06-23 10:11:00",
    "2-Mar-2020 10:11:12 +0100": "2020-03-02 09:11:12",
    "Mo, 2 Mär 2020 10:11:12 +0100": "2020-03-02 09:11:12",
    "2. März 2020 10:11:12 +0100": "2020-03-02 09:11:12",
    "lun., 2 févr. 2020 10:11:12 +0100": "2020-02-02 09:11:12",
    "Пн, 2 мар 2020 10:11:12 +0300": "2020-03-02 07:11:12",
    "2020年3月2日 10:11:12 +0900": "2020-03-02 01:11:12",
    "Mon, 2 Mar 2020 24:00:00 +0000": "2020-03-03 00:00:00",
    "Mon, 2 Mar 2020 23:59:60 +0000": "2020-03-02 23:59:59",
    "Mon, 2 Mar 2020 10.11.12 +0000": "2020-03-02 10:11:12",
    "Mon, 2 Mar 2020 10:11:12 GMT+0200": "2020-03-02 08:11:12",
    "Mon,2 Mar 2020 10:11:12 +02:00": "2020-03-02 08:11:12",
    "Mon, 2 Mar 2020 10:11:12 +9999": "2020-03-02 10:11:12",
    "Mon, 2 Mar 2020 10:11:12": "2020-03-02 10:11:12",
    "Mon, 2 Mar 2020 10:11:12 -0000": "2020-03-02 10:11:12",
    "  Mon,  2  Mar  2020  10:11:12  +0100  ": "2020-03-02 09:11:12",
}


@pytest.mark.parametrize(("text", "expected"), SPELLINGS.items())
def test_spellings(text: str, expected: str) -> None:
    assert parse_date(text) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "soon", "31 Feb 2020 10:00:00 +0000", "2 Mar", "10:11:12", "0000", "99 Mar 2020", "Mar", "-1"]
)
def test_what_is_no_date(text: str) -> None:
    assert parse_date(text) is None


@given(st.text(max_size=100))
def test_never_raises(text: str) -> None:
    parse_date(text)


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)), st.integers(-12 * 4, 12 * 4))
def test_there_and_back(local: datetime, quarters: int) -> None:
    sign, minutes = "-" if quarters < 0 else "+", abs(quarters) * 15
    zone = f"{sign}{minutes // 60:02}{minutes % 60:02}"
    parsed = parse_date(f"{local:%a, %d %b %Y %H:%M:%S} {zone}")
    assert parsed == datetime.strptime(f"{local:%Y-%m-%d %H:%M:%S} {zone}", "%Y-%m-%d %H:%M:%S %z")


SENT, SERVER, RECEIVED = (datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3))


def test_the_origin_is_recorded() -> None:
    assert choose_date(SENT, SERVER, RECEIVED) == DatedBy(SENT, DateOrigin.DATE)
    assert choose_date(None, SERVER, RECEIVED) == DatedBy(SERVER, DateOrigin.SERVER)
    assert choose_date(None, None, RECEIVED) == DatedBy(RECEIVED, DateOrigin.RECEIVED)
    assert choose_date(None, None, None) == DatedBy(None, DateOrigin.NONE)


def test_sorted_by_the_date_if_it_can_be_true() -> None:
    assert sort_date(SENT, SERVER, RECEIVED) == SENT
    assert sort_date(datetime(2020, 1, 4, tzinfo=UTC), SERVER, RECEIVED) == SERVER
    assert sort_date(datetime(2009, 1, 1, tzinfo=UTC), None, RECEIVED) == RECEIVED
    assert sort_date(datetime(2030, 1, 1, tzinfo=UTC), None, None) == datetime(2030, 1, 1, tzinfo=UTC)
    assert sort_date(None, None, None) is None
