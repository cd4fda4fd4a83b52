"""Values that are held in proportion to what they cost."""

import threading
from collections.abc import Iterator

import pytest

from archiver.adaptive_cache import Remembered
from tests.support.waiting import DEADLINE_SECONDS


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_value_is_held_20_times_as_long_as_it_took() -> None:
    clock, made = Clock(), []
    remembered: Remembered[int] = Remembered(clock=clock)

    def make() -> int:
        clock.now += 2
        made.append(1)
        return len(made)

    assert remembered.get("a", make) == 1
    clock.now += 39
    assert remembered.get("a", make) == 1
    assert remembered.get("b", make) == 2
    clock.now += 1
    assert remembered.get("a", make) == 3


def test_a_value_is_held_at_least_so_long() -> None:
    clock, made = Clock(), iter(range(9))
    remembered: Remembered[int] = Remembered(at_least=5, clock=clock)
    assert remembered.get("a", lambda: next(made)) == 0
    clock.now += 4.9
    assert remembered.get("a", lambda: next(made)) == 0
    clock.now += 0.2
    assert remembered.get("a", lambda: next(made)) == 1


def test_a_failure_is_not_remembered() -> None:
    remembered: Remembered[int | None] = Remembered(clock=Clock())
    assert remembered.get("a", lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        remembered.get("a", lambda: 1 // 0)
    assert remembered.get("a", lambda: 5) == 5


def test_many_who_ask_at_once_wait_for_one() -> None:
    remembered: Remembered[int] = Remembered()
    may_end, numbers = threading.Event(), iter(range(10))
    found: list[int] = []

    def make() -> int:
        number = next(numbers)
        may_end.wait(DEADLINE_SECONDS)
        return number

    threads = [threading.Thread(target=lambda: found.append(remembered.get("a", make))) for _ in range(5)]
    for thread in threads:
        thread.start()
    threading.Timer(0.2, may_end.set).start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert found == [0] * 5


def test_while_one_makes_the_next_value_the_others_get_the_last() -> None:
    clock = Clock()
    remembered: Remembered[str] = Remembered(clock=clock)
    assert remembered.get("a", lambda: "old") == "old"
    clock.now += 1
    begun, may_end, found = threading.Event(), threading.Event(), []

    def make() -> str:
        begun.set()
        may_end.wait(DEADLINE_SECONDS)
        return "new"

    thread = threading.Thread(target=lambda: found.append(remembered.get("a", make)))
    thread.start()
    assert begun.wait(DEADLINE_SECONDS)
    assert remembered.get("a", lambda: "never") == "old"
    may_end.set()
    thread.join(DEADLINE_SECONDS)
    assert found == ["new"]


def test_it_does_not_grow_for_ever() -> None:
    remembered: Remembered[int] = Remembered()
    keys: Iterator[int] = iter(range(5_000))
    for key in keys:
        remembered.get(key, lambda key=key: key)  # type: ignore[misc]
    assert len(remembered._made) <= 1_001
