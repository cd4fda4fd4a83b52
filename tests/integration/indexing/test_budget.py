"""A thousand messages, from bytes to a search hit, within the counted costs of `benchmarks/budget.json`.

Unlike a timed test, it does not depend on the machine. A change that makes it cheaper, or more expensive on purpose, records
the new costs: `ARCHIVER_RECORD_BUDGET=1 .venv/bin/pytest tests/integration/indexing/test_budget.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.store import generated
from tests.integration.indexing.conftest import IndexWorld
from tests.support.counted_costs import CostCounter, CountingFiles

BUDGET = Path(__file__).parents[3] / "benchmarks" / "budget.json"
MESSAGES, BATCH = 1000, 200
TOLERANCE = 0.05
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_thousand_messages_stay_within_the_counted_budget(at: IndexWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    files = CountingFiles()
    at.ingest = at.open(files)
    mail = list(generated(MESSAGES + BATCH))
    at.put(*mail[MESSAGES:])  # opens the pack and starts the children that read headers
    at.index(batch=2000)
    counter = CostCounter(at.engine, files, monkeypatch)
    with counter.counting() as stored:
        for start in range(0, MESSAGES, BATCH):
            at.put(*mail[start : start + BATCH])
    with counter.counting() as indexed:
        assert at.index(batch=2000).indexed == MESSAGES
    found = {"store": _rounded(stored), "index": _rounded(indexed)}
    if os.environ.get("ARCHIVER_RECORD_BUDGET"):
        BUDGET.write_text(json.dumps({"python": _PYTHON, **found}, indent=2) + "\n")
    budget = json.loads(BUDGET.read_text())
    assert not _exceeded(found, budget)


def _rounded(costs: Counter[str]) -> dict[str, int]:
    return {name: costs[name] for name in sorted(costs)}


def _exceeded(found: dict[str, dict[str, int]], budget: dict[str, dict[str, int]]) -> list[str]:
    """Function calls differ between versions of Python: they are compared only on the one they were recorded with."""
    ignored = {"python_calls"} if budget["python"] != _PYTHON else set()
    return [
        f"{part}: {name} is {value}, and {allowed} in {BUDGET.name}"
        for part, costs in found.items()
        for name, value in costs.items()
        if name not in ignored and value > (allowed := budget[part][name]) * (1 + TOLERANCE) + 2
    ]
