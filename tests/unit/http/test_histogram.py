"""Bars over time: years, or months of a short time."""

from __future__ import annotations

from datetime import date

from archiver.http.catalogue import Texts
from archiver.http.pages.histogram import histogram
from archiver.search.facets import FacetValue

TODAY = date(2026, 6, 1)
ENGLISH = Texts("en")


def _values(**counts: int) -> list[FacetValue]:
    return [FacetValue(value.removeprefix("_").replace("_", "-"), count) for value, count in counts.items()]


def test_years_without_a_hole() -> None:
    bars = histogram(ENGLISH, {"year": _values(_2024=4, _2021=2)}, TODAY)
    assert [(bar.label, bar.count, bar.height) for bar in bars] == [
        ("2021", 2, 20.0),
        ("2022", 0, 0.0),
        ("2023", 0, 0.0),
        ("2024", 4, 40.0),
    ]
    assert bars[0].words == "after:2021-01-01 before:2022-01-01"


def test_months_of_a_short_time_from_the_first_to_the_last() -> None:
    months = _values(_2023_10=0, _2023_11=1, _2023_12=0, _2024_01=3, _2024_02=0)
    bars = histogram(ENGLISH, {"year": _values(_2023=1, _2024=3), "month": months}, TODAY)
    assert [(bar.label, bar.count) for bar in bars] == [("Nov 2023", 1), ("Dec 2023", 0), ("Jan 2024", 3)]
    assert bars[1].words == "after:2023-12-01 before:2024-01-01"


def test_one_time_is_one_bar_and_none_is_no_picture() -> None:
    assert [bar.label for bar in histogram(ENGLISH, {"year": _values(_2024=4)}, TODAY)] == ["2024"]
    assert histogram(ENGLISH, {"year": _values(_1970=4)}, TODAY) == []
    assert histogram(ENGLISH, {}, TODAY) == []


def test_mail_without_a_date_or_from_the_future_does_not_squeeze_the_others() -> None:
    bars = histogram(ENGLISH, {"year": _values(_1970=9, _2020=1, _2021=1, _2999=1)}, TODAY)
    assert [bar.label for bar in bars] == ["2020", "2021"]


def test_sixty_bars_at_most() -> None:
    years = {f"_{year}": 1 for year in range(1971, 2041)}
    bars = histogram(ENGLISH, {"year": _values(**years)}, date(2040, 1, 1))
    assert (len(bars), bars[0].label, bars[-1].label) == (60, "1981", "2040")
