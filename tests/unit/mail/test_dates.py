"""Dates in every spelling that occurs, and the choice between several."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.mail.header.dates import DatedBy, ParsedDateOrigin, choose_date, parse_date, sort_date

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
    "Mon, 2 Mar 2020 10:11:12 +05-30": "2020-03-02 04:41:12",
    "Mon, 2 Mar 2020 10:11:12 -03-30": "2020-03-02 13:41:12",
    "2 Mar 2020 10:11:12 +01-2020": "2020-03-02 09:11:12",
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
    assert choose_date(SENT, SERVER, RECEIVED) == DatedBy(SENT, ParsedDateOrigin.DATE)
    assert choose_date(None, SERVER, RECEIVED) == DatedBy(RECEIVED, ParsedDateOrigin.RECEIVED)
    assert choose_date(None, SERVER, None) == DatedBy(SERVER, ParsedDateOrigin.SERVER)
    assert choose_date(None, None, None) == DatedBy(None, ParsedDateOrigin.NONE)


def test_sorted_by_the_date_if_it_can_be_true() -> None:
    assert sort_date(SENT, SERVER, Trace(RECEIVED)) == SENT
    assert sort_date(at(2020, 1, 4), SERVER, Trace()) == SERVER
    assert sort_date(at(2009), None, Trace(RECEIVED)) == RECEIVED
    assert sort_date(at(2030), None, Trace()) == at(2030)
    assert sort_date(None, None, Trace()) is None


@dataclass(frozen=True)
class Trace:
    """The dates of the `Received` fields: the last server's, and the first server's on the way."""

    first_received: datetime | None = None
    oldest: datetime | None = None

    @property
    def oldest_received(self) -> datetime | None:
        return self.oldest or self.first_received


def at(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


COPIED = at(2026, 11, 1)  # when the mail was copied into the account, which is what the server says about its receipt


@pytest.mark.parametrize(
    ("sent", "server", "trace", "expected"),
    [
        (at(1998, 3, 1), COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 1)),
        (at(1998, 3, 1), COPIED, Trace(), at(1998, 3, 1)),
        (at(1998, 3, 1), COPIED, Trace(at(1998, 4, 1), at(1998, 3, 1)), at(1998, 3, 1)),
        (None, COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 2)),
        (None, COPIED, Trace(), COPIED),
        (at(2036), COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 2)),
        (at(2036), COPIED, Trace(), COPIED),
        (at(1970), COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 2)),
        (at(1970), COPIED, Trace(), COPIED),
        (at(1980, 1, 1), COPIED, Trace(), COPIED),
        (at(1985), COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 2)),
        (at(1999, 3, 2), COPIED, Trace(at(1998, 3, 2)), at(1998, 3, 2)),
        (at(2026, 10, 31), COPIED, Trace(at(2026, 11, 1), at(1990)), at(2026, 10, 31)),
        (at(2026, 8, 1), COPIED, Trace(at(2026, 11, 1), at(1990)), at(2026, 11, 1)),
        (None, COPIED, Trace(at(2036)), COPIED),
    ],
    ids=[
        "copied later",
        "copied later, never went through a server",
        "copied later, after weeks on the way",
        "no date, copied later",
        "no date and no trace",
        "from the future, copied later",
        "from the future, no trace",
        "a clock at its beginning, copied later",
        "a clock at its beginning, no trace",
        "another clock at its beginning",
        "a date that Received contradicts",
        "a date after its receipt",
        "a forged first server, delivered at once",
        "a forged first server",
        "a server whose clock is ahead",
    ],
)
def test_mail_that_was_copied_into_an_account_later(
    sent: datetime | None, server: datetime, trace: Trace, expected: datetime
) -> None:
    assert sort_date(sent, server, trace) == expected
