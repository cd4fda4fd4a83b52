"""Distribution of hits over time: bars by year, or by month for a short period, without gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from archiver.http.catalogue import Texts
from archiver.http.formats import month
from archiver.search.facets import FacetValue

_MAX_BARS = 60
_HEIGHT = 40


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    start: date
    end: date
    count: int
    height: float

    @property
    def words(self) -> str:
        """The query terms for this period."""
        return f"after:{self.start} before:{self.end}"


def histogram(t: Texts, facets: Mapping[str, Sequence[FacetValue]], today: date) -> list[Bar]:
    """Empty if no hit has a date."""
    months = {_number(one.value): one.count for one in facets.get("month", ())}
    if len(months) > 1:
        return _bars(t, months, 1, today)
    return _bars(t, {int(one.value) * 12: one.count for one in facets.get("year", ()) if one.value.isdigit()}, 12, today)


def _bars(t: Texts, counts: Mapping[int, int], step: int, today: date) -> list[Bar]:
    """Months are numbered from year 0. Messages without a date or from the future have no bar."""
    known = [number for number, count in counts.items() if count and 1970 < number // 12 <= today.year + 1]
    if not known:
        return []
    span = range(max(min(known), max(known) - (_MAX_BARS - 1) * step), max(known) + 1, step)
    highest = max(counts.get(number, 0) for number in span)
    return [
        Bar(
            _label(t, number, step),
            _first_day(number),
            _first_day(number + step),
            counts.get(number, 0),
            round(_HEIGHT * counts.get(number, 0) / highest, 2),
        )
        for number in span
    ]


def _number(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * 12 + int(number) - 1


def _first_day(number: int) -> date:
    return date(number // 12, number % 12 + 1, 1)


def _label(t: Texts, number: int, step: int) -> str:
    return str(number // 12) if step == 12 else month(t, _first_day(number))
