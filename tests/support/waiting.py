"""Waiting for other threads, processes, servers and browsers: by condition, with one generous deadline for all of them.

What has to happen may take DEADLINE_SECONDS, however slow and busy the machine is; nothing waits that long unless it fails.
ARCHIVER_TEST_PATIENCE=3 makes every deadline three times as long, the limit of each test included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = float(os.environ.get("ARCHIVER_TEST_PATIENCE", "1"))
DEADLINE_SECONDS = 120.0 * PATIENCE


def patient(seconds: float) -> float:
    """For what needs longer than the usual deadline; never less than that."""
    return max(seconds * PATIENCE, DEADLINE_SECONDS)


def eventually(condition: Callable[..., Any], seconds: float = 0.0, what: str = "it", pause: float = 0.05) -> Any:
    """What `condition` returns once it is truthy; fails when the deadline passes."""
    limit = patient(seconds)
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {limit:.0f} s")
        time.sleep(pause)
