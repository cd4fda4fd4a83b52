"""Waiting for what happens in other threads and processes: by condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


def eventually(condition: Callable[[], Any], seconds: float = 60.0, what: str = "it") -> Any:
    """What `condition` returns once it is truthy; fails when the deadline passes."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.05)
