"""Policies over a large archive: how long a simulation takes, and how many copies a run deletes in a second.

Postgres is filled by SQL (benchmarks/scale.py); the policies are such that the database alone can answer them.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import cast

import structlog
from sqlalchemy import Engine

from archiver.access.principal import LOCAL_OPERATOR
from archiver.maintenance.retention import executor
from archiver.retention import policies, simulation
from archiver.retention.policies import NewPolicy
from archiver.secrets import Keyring
from archiver.supervisor.ready import notify_ready
from benchmarks.report import figure, load
from benchmarks.scale import LARGE, fill_rows
from benchmarks.store import Stopwatch, World, server, world

DELETIONS = 50_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=LARGE, help="in the archive")
    count = options.parse_args().messages
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    notify_ready()
    with (
        tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder,
        server(Path(folder)) as postgres,
        world(postgres, Path(folder)) as at,
    ):
        fill_rows(at, count)
        _measure(at, count)


def _measure(at: World, count: int) -> None:
    engine = cast(Engine, at.engine)
    keep = NewPolicy("Keep", "bench", "from:user7@example.org", keep_for="30y", counted_from="sent")
    policies.propose(engine, LOCAL_OPERATOR, keep)
    delete = NewPolicy("Clean up", "bench", "from:*@example.org larger:1K", delete_after="1y", counted_from="sent")
    version = policies.propose(engine, LOCAL_OPERATOR, delete)
    with Stopwatch() as watch:
        version = simulation.simulate(engine, at.archive, LOCAL_OPERATOR, version)
    figure(f"a policy is simulated over {count:,} messages", watch.wall, "s", "≤ 60 for 1,000,000")
    figure("  processor time, ours and Postgres'", watch.cpu + watch.server, "s")
    figure("  due", (version.simulation or {})["due"], "messages")
    with engine.begin() as connection:
        policies.approve(connection, LOCAL_OPERATOR, version, second_person=False)
    limit = min(DELETIONS, count // 2)
    with Stopwatch() as watch:
        run = replace(executor(engine, at.archive, Keyring({"bench": b"b" * 32})), principal=LOCAL_OPERATOR).run(limit)
    assert run is not None
    figure("a run deletes", run.copies / watch.wall, "copies/s", "≥ 2,000")
    figure("  our processor time", 1e6 * watch.cpu / run.copies, "µs/copy")
    figure("  Postgres' processor time", 1e6 * watch.server / run.copies, "µs/copy")


if __name__ == "__main__":
    main()
