"""When the disk is full, at the growth of the last months."""

from __future__ import annotations

from datetime import UTC, datetime

from archiver.reading.statistics import Month, months_until_full


def months(*sizes: int) -> list[Month]:
    return [Month(datetime(2024, number + 1, 1, tzinfo=UTC), 1, size) for number, size in enumerate(sizes)]


def test_at_the_archives_own_compression() -> None:
    steady = months(100, 100, 100, 100, 7)
    assert months_until_full(steady, stored_bytes=50, original_bytes=100, free_bytes=1_000) == 20
    assert months_until_full(steady, stored_bytes=100, original_bytes=100, free_bytes=99) == 0


def test_nothing_is_forecast_from_nothing() -> None:
    assert months_until_full(months(100, 100, 5), 50, 100, 1_000) is None, "too few full months"
    assert months_until_full(months(0, 0, 0, 0, 0), 50, 100, 1_000) is None
    assert months_until_full([], 0, 0, 1_000) is None
    assert months_until_full(months(1, 1, 1, 1, 1), 100, 100, 10**18) == 1_200, "no further than a century"
