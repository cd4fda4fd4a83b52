"""Workers of the release before go on while the schema is migrated under them, and after it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from tests.acceptance.sync.world import World, eventually
from tests.support.waiting import DEADLINE_SECONDS

PREVIOUS_SCHEMA = "0006"
"""Of the release before this one: to be raised when one is made."""
CYCLES = 5
_PROJECT = Path(__file__).parents[3]
# Runs in the tree of the release before, under its own module names.
_MIGRATE = """
import sys
from archiver.db import make_engine
from archiver.services import schema
schema.migrate(make_engine(sys.argv[1], "migrate"))
"""
_TROUBLE = ("job_failed", "relay_failed", "relay_waits", "worker_error", "worker_loop_died", "job_waits", "Traceback")


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(_PROJECT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the tree of the release before can't be taken from git: {error}")


def _previous_commit() -> str:
    """The parent of the commit that brought the first migration after PREVIOUS_SCHEMA to the main line."""
    added = ("--reverse", "--first-parent", "-m", "--diff-filter=A", "--name-only", "--format=commit %H")
    log = _git("log", *added, "--", "migrations")
    commit = ""
    for line in log.decode().splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif (name := Path(line).name).startswith("m") and name[1:5].isdigit() and name[1:5] > PREVIOUS_SCHEMA:
            return f"{commit}^"
    pytest.skip(f"there is no commit with a migration after {PREVIOUS_SCHEMA}")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(_git("archive", _previous_commit()))) as packed:
        packed.extractall(tree, filter="data")
    return tree


class Previous(World):
    """Its workers are of the release before."""

    tree: Path

    def start_worker(self, queue: str = "ingestion") -> subprocess.Popen[bytes]:
        self.environment["PYTHONPATH"] = str(self.tree)
        with (self.place / "worker-previous.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "workers", queue]
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.tree)
        self.workers.append(process)
        return process


@pytest.fixture
def world(tmp_path: Path, empty_database_url: str, previous: Path) -> Iterator[Previous]:
    environment = {**os.environ, "PYTHONPATH": str(previous)}
    migrate = [sys.executable, "-P", "-c", _MIGRATE, empty_database_url]
    subprocess.run(migrate, env=environment, cwd=previous, check=True, timeout=DEADLINE_SECONDS)
    folder = DataFolder(tmp_path / "valkey")
    folder.prepare()
    valkey = EmbeddedValkey(folder)
    valkey.prepare()
    with valkey.running():
        made = Previous(tmp_path, empty_database_url, valkey)
        made.tree = previous
        try:
            yield made
        finally:
            made.stop_workers()
            made.engine.dispose()


def test_a_worker_of_the_release_before_survives_the_new_schema(
    world: Previous, postgres: EmbeddedPostgres, previous: Path
) -> None:
    worker = world.start_worker()
    eventually(lambda: "worker_ready" in world.log(), what="the worker of the release before")
    where = [sys.executable, "-P", "-c", "import archiver, workers; print(archiver.__file__, workers.__file__)"]
    loaded = subprocess.run(where, env=world.environment, cwd=previous, capture_output=True, text=True, check=True).stdout
    assert all(path.startswith(str(previous)) for path in loaded.split()), "it is really the one of before"
    assert world.one("SELECT version_num FROM alembic_version") == PREVIOUS_SCHEMA
    engine = make_engine(world.database_url, "migrate")
    assert schema.migrate(engine)
    engine.dispose()

    source = world.add("one", mailboxes=3, messages_per_mailbox=20)
    for cycle in range(CYCLES):
        world.edit(source, messages_per_mailbox=20 + 10 * cycle)
        run = world.sync(source)
        assert (run.outcome, run.mailboxes, run.archived) == ("success", 3, 60 if cycle == 0 else 30)
    assert len(world.archive(source)) == 3 * (20 + 10 * (CYCLES - 1))
    world.assert_at_rest()
    assert worker.poll() is None
    assert not [line for line in world.log().splitlines() if any(trouble in line for trouble in _TROUBLE)]
