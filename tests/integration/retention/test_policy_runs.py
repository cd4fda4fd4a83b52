"""Runs of policies: bounded, in batches, once, and whole after a kill."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from archiver.maintenance.retention import executor
from archiver.retention import policies, runs
from tests.integration.retention.policies_world import KEYRING, NOW, in_force, left, propose, run, stored
from tests.integration.store.conftest import World
from tests.integration.store.filled import id_of
from tests.support.waiting import eventually


def test_a_run_is_bounded_and_goes_on_in_batches(world: World) -> None:
    stored(world, *range(1, 40))
    in_force(world, delete_after="1y")
    done = run(world, batch=5, limit=10)
    assert done is not None
    assert done.copies == 10
    again = run(world, batch=7)
    assert again is not None
    assert (again.copies, again.id != done.id) == (29, True)
    assert left(world) == set()


def test_two_runners_delete_once(world: World) -> None:
    stored(world, *range(1, 60))
    in_force(world, delete_after="1y")
    with ThreadPoolExecutor(2) as pool:
        done = [one for one in pool.map(lambda _: run(world, batch=5), range(2)) if one is not None]
    assert sum(one.copies for one in done) == 59
    assert world.value("SELECT count(*) FROM retention_runs WHERE finished_at IS NULL") == 0


def test_a_policy_that_changes_during_a_run_ends_it(world: World) -> None:
    stored(world, *range(1, 40))
    in_force(world, name="Clean up", delete_after="1y")
    steps = iter(range(1000))

    def change_once() -> bool:
        """Between two batches."""
        if next(steps) == 4:
            propose(world, name="Keep", query="-from:sender1@example.org", keep_for="10y")
        return False

    made = replace(executor(world.engine, world.archive, KEYRING), clock=lambda: NOW, batch=2)
    first = made.run(1_000, change_once)
    assert first is not None
    assert 0 < first.copies < 39
    with world.engine.connect() as connection:
        assert len(policies.in_force(connection)) == 2
    before = left(world)
    run(world)
    assert {id_of(number) for number in range(1, 40) if number % 7 != 1} & before <= left(world)
    assert not left(world) & {id_of(number) for number in range(1, 40) if number % 7 == 1}


_KILLED = """
import sys, os, signal
from datetime import UTC, datetime
from dataclasses import replace
from pathlib import Path
from archiver.db.engine import make_engine
from archiver.maintenance.retention import executor
from archiver.secrets import Keyring
from tests.integration.store.conftest import World
world = World(make_engine(sys.argv[1], "test"), Path(sys.argv[2]))
world.open()
print("ready", flush=True)
made = executor(world.engine, world.archive, Keyring({"test": b"k" * 32}))
replace(made, clock=lambda: datetime(2026, 6, 1, tzinfo=UTC), batch=3).run(1_000_000)
print("done", flush=True)
"""


def test_a_run_that_is_killed_goes_on_and_its_receipt_lists_everything(world: World) -> None:
    stored(world, *range(1, 200))
    in_force(world, delete_after="1y")
    url = world.engine.url.render_as_string(hide_password=False)
    world.close()
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, url, str(world.folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        count = "SELECT coalesce(sum(copies), 0) FROM retention_runs"
        eventually(lambda: 0 < int(world.value(count)) < 190, seconds=60)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.communicate(timeout=60)
    before = int(world.value(count))
    assert 0 < before < 199, "killed in the middle"
    world.open()
    done = eventually(lambda: run(world), seconds=60)
    assert done is not None
    assert done.copies == 199
    assert left(world) == set()
    with world.engine.connect() as connection:
        assert len(list(runs.deleted_units(connection, done))) == 199
    assert world.value("SELECT count(*) FROM retention_runs") == 1
