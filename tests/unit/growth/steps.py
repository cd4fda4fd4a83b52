"""How many lines of Python a call runs through: the same number each time, on each machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_lines(work: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, given: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def grows_faster(work: Callable[[int], Callable[[], Any]], few: int) -> float:
    """How many times the lines for three times the size: about 3 for what is linear."""
    work(few - 1)()  # the first call may compile patterns
    return count_lines(work(3 * few)) / max(2_000, count_lines(work(few)))
