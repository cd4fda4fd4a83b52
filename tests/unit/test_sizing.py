"""The arithmetic of `archiver doctor --plan`, and the simulation with the same costs."""

from __future__ import annotations

import pytest

from archiver.errors import UsageError
from archiver.maintenance.sizing import COSTS, PlanInput, plan, read_plan
from benchmarks.simulate import Cycle, simulate


@pytest.mark.parametrize(
    ("text", "messages", "mailboxes"),
    [("20M,500", 20_000_000, 500), ("1.5k, 2", 1_500, 2), ("1000000,10_000", 1_000_000, 10_000)],
)
def test_numbers(text: str, messages: int, mailboxes: int) -> None:
    found = read_plan(text)
    assert (found.messages, found.mailboxes) == (messages, mailboxes)


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "x,1", "0,1", "-5,1", "1,inf", "nan,1", "1e400,1", "9999999M,1"])
def test_bad_numbers_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="--plan"):
        read_plan(text)


def test_everything_grows_with_the_archive() -> None:
    small, large = plan(PlanInput(1_000_000, 100)), plan(PlanInput(2_000_000_000, 100_000))
    for name in ("disk_bytes", "database_bytes", "index_bytes", "memory_bytes", "cores", "slots", "first_hours"):
        assert getattr(large, name) > getattr(small, name), name
    assert small.notes == ()
    assert any("more than one machine" in note for note in plan(PlanInput(10**9, 1_000_000)).notes)


def test_a_small_company_fits_on_a_small_machine() -> None:
    found = plan(PlanInput(2_000_000, 50))
    assert (found.cores, found.ingestion_workers) == (2, 1)
    assert found.memory_bytes < 8_000_000_000


def test_slots_follow_littles_law() -> None:
    given = PlanInput(1_000_000, 90_000, cycle_seconds=900, wait_seconds=1.0)
    found = plan(given)
    assert 100 <= found.slots <= 200, "100 mailboxes a second that take a second each, and some to spare"
    assert found.cycle_seconds <= given.cycle_seconds


def test_the_simulation_is_bound_by_waiting_then_by_processors_then_by_the_database() -> None:
    waiting = simulate(Cycle(1_000, 1, messages_each=0, wait_seconds=1.0))
    assert waiting.seconds == pytest.approx(1_000 / 5, rel=0.05)
    busy = simulate(Cycle(10_000, 1, messages_each=100, wait_seconds=0.0))
    assert busy.worker_busy > 0.95
    many = simulate(Cycle(100_000, 100, messages_each=20, wait_seconds=0.1, database_cores=1.0))
    assert many.database_busy > 0.95
    assert simulate(Cycle(10_000, 4)).seconds < simulate(Cycle(10_000, 2)).seconds < simulate(Cycle(10_000, 1)).seconds


def test_a_cycle_of_the_plan_is_a_cycle_of_the_simulation() -> None:
    given = PlanInput(1_000_000, 9_000, new_a_day=0.0)
    found = plan(given)
    cycle = Cycle(given.mailboxes, found.ingestion_workers, 0, given.wait_seconds, given.slots_each, found.cores)
    assert simulate(cycle, COSTS).seconds <= 1.2 * given.cycle_seconds
