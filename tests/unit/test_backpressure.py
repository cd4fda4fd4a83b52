"""Whose bulk work is refused, and for how long."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from archiver.sources.backpressure import Pressure, PressureLimits, Trend, refusal

ANN, BOB, CY = uuid4(), uuid4(), uuid4()
LIMITS = PressureLimits(lag_seconds=600, spool_bytes=100)


def refused(pressure: Pressure, more_bytes: int = 1, limits: PressureLimits = LIMITS) -> set[UUID]:
    return {owner for owner in (ANN, BOB, CY) if refusal(pressure, limits, owner, more_bytes)}


@pytest.mark.parametrize(
    ("lag", "expected"), [(599, set()), (601, {ANN}), (1490, {ANN}), (1510, {ANN, BOB}), (6000, {ANN, BOB})]
)
def test_the_heaviest_are_refused_first(lag: float, expected: set[UUID]) -> None:
    assert refused(Pressure(lag, {ANN: 80, BOB: 20}, {})) == expected


def test_who_has_nothing_waiting_is_never_refused_for_the_lag() -> None:
    assert refused(Pressure(1e9, {ANN: 1}, {})) == {ANN}
    assert refused(Pressure(1e9, {}, {})) == set()


def test_uploads_beyond_an_equal_part_are_refused_while_there_are_too_many() -> None:
    full = Pressure(0, {}, {ANN: 90, BOB: 9})
    assert refused(full, more_bytes=1) == set(), "the limit is not exceeded"
    assert refused(full, more_bytes=10) == {ANN}
    assert refused(full, more_bytes=60) == {ANN, BOB, CY}
    assert refused(full, more_bytes=0) == set(), "an import of what has arrived makes it smaller"


def test_a_limit_of_zero_is_none() -> None:
    heavy = Pressure(1e9, {ANN: 100}, {ANN: 1 << 50})
    assert refused(heavy, limits=PressureLimits(0, 0)) == set()


def test_the_sentence_names_the_measure() -> None:
    found = refusal(Pressure(4500, {ANN: 83, BOB: 17}, {}), LIMITS, ANN)
    assert found is not None
    assert "waited 75 minutes" in found.text
    assert "83%" in found.text


def test_the_pause_is_what_the_backlog_needs_at_its_present_rate() -> None:
    now = [0.0]
    trend = Trend(lambda: now[0])
    assert trend.seconds_until(100) == 300, "nothing is known yet"
    for value in (1000, 900, 800, 700):
        trend.add(value)
        now[0] += 20
    assert trend.seconds_until(100) == 20  # it falls by 5 a second
    assert trend.seconds_until(1) == 10
    assert trend.seconds_until(1e9) == 3600
    trend.add(5000)
    assert trend.seconds_until(100) == 900, "it grows"
    now[0] += 1000
    trend.add(1)
    assert trend.seconds_until(1) == 300, "old samples say nothing"
