"""Workers pause for a migration that must not run beside them, and go on after it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrations
from archiver.db import pause, schema
from archiver.db.engine import make_engine
from archiver.db.pause import WorkerPresence, find_pause, paused_workers
from archiver.errors import NotReady
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.waiting import DEADLINE_SECONDS

_NO_SEARCH = {"MEILI_HOST": "http://127.0.0.1:9", "MEILI_MASTER_KEY": "nobody-listens-there"}
_STEP = '''"""A step that must not run beside workers"""
from alembic import op
revision = "9000"
down_revision = "{newest}"
branch_labels = None
depends_on = None
pauses_workers = True


def upgrade() -> None:
    op.execute("CREATE TABLE seen_by_the_step AS SELECT pid, is_paused FROM worker_processes")
    op.execute("CREATE TABLE copies_at_the_step AS SELECT count(*) AS n FROM message_copies")
'''


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres) as made:
        yield made


@pytest.fixture
def step_that_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    newest = max(path.name[1:5] for path in (folder / "versions").glob("m[0-9]*.py"))
    (folder / "versions" / "m9000_pauses.py").write_text(_STEP.format(newest=newest))
    monkeypatch.setattr(schema, "_folder", lambda: folder)
    return "9000"


@pytest.mark.timeout(300)
def test_a_migration_runs_while_the_workers_pause_and_they_go_on_after_it(world: World, step_that_pauses: str) -> None:
    worker = world.start_worker()
    source = world.add("one", mailboxes=2, messages_per_mailbox=250, batch_messages=10, trouble={"slow_seconds": 0.2})
    before = world.start_sync(source)
    eventually(lambda: world.one("SELECT count(*) FROM message_copies") >= 20, what="some mail")
    sentences: list[str] = []
    engine = make_engine(world.database_url, "migrate")
    assert schema.migrate(engine, report=sentences.append) == (step_that_pauses,)
    engine.dispose()
    assert f"(pid {worker.pid})" in sentences[0]
    assert world.rows("SELECT pid, is_paused FROM seen_by_the_step") == [(worker.pid, True)]
    copies = world.one("SELECT n FROM copies_at_the_step")
    assert 20 <= copies < 500, "in the midst of its work"
    assert world.rows("SELECT * FROM worker_pause") == []
    world.edit(source, trouble={})

    run = world.wait(source, before, 120)
    assert (run.outcome, run.archived) == ("success", 500)
    assert len(world.archive(source)) == 500
    assert worker.poll() is None, "the same process, by its pid"
    assert [name for name in ("worker_pauses", "worker_resumes") if name not in world.log()] == []
    assert world.rows("SELECT pid, is_paused FROM worker_processes") == [(worker.pid, False)]
    world.assert_at_rest()


@pytest.mark.timeout(240)
def test_a_worker_that_starts_during_a_pause_waits_and_can_be_stopped(world: World) -> None:
    with paused_workers(world.engine, "a test"):
        worker = world.start_worker()
        eventually(lambda: "paused: a test" in world.log(), what="it says so")
        eventually(lambda: world.rows("SELECT 1 FROM worker_processes WHERE is_paused"), what="its row")
        with world.engine.connect() as connection:
            found = find_pause(connection)
        assert found is not None
        assert (found.reason, found.working) == ("a test", ())
        assert "worker_ready" not in world.log()
        command = [sys.executable, "-m", "archiver", "status", "--json"]
        status = subprocess.run(command, env={**world.environment, **_NO_SEARCH}, capture_output=True, text=True)
        assert json.loads(status.stdout)["pause"]["reason"] == "a test"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0
        other = world.start_worker()
        eventually(lambda: world.rows("SELECT 1 FROM worker_processes WHERE is_paused"), what="the other one's row")
    eventually(lambda: "worker_ready" in world.log(), what="it works after the pause")
    other.send_signal(signal.SIGTERM)
    assert other.wait(DEADLINE_SECONDS) == 0
    assert world.rows("SELECT * FROM worker_processes") == []


def test_a_worker_that_does_not_pause_stops_the_migration_and_not_the_others(world: World) -> None:
    stubborn = WorkerPresence.join(world.engine, "indexing")
    why = r"have not paused: indexing on \S+ \(pid \d+\); stop them"
    with pytest.raises(NotReady, match=why), paused_workers(world.engine, "a test", wait_seconds=0.5):
        pytest.fail("it began beside a worker")
    assert stubborn.beat() is None, "the pause is over"


def test_a_pause_ends_with_the_process_that_asked_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = WorkerPresence.join(world.engine, "ingestion")
    monkeypatch.setattr(pause, "_RENEW_SECONDS", 0.1)
    asked, over = threading.Event(), threading.Event()

    def ask() -> None:
        with paused_workers(world.engine, "a test"):
            asked.set()
            over.wait(DEADLINE_SECONDS)

    thread = threading.Thread(target=ask)
    waiting.beat(is_paused=True)
    thread.start()
    assert asked.wait(DEADLINE_SECONDS)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE worker_pause SET expires_at = now() + interval '0.2 seconds'")
    eventually(lambda: world.one("SELECT expires_at > now() + interval '30 seconds' FROM worker_pause"), what="it is renewed")
    over.set()
    thread.join()
    with world.engine.begin() as connection:  # as a process leaves it that was killed
        connection.exec_driver_sql(
            "INSERT INTO worker_pause (reason, expires_at) VALUES ('a test', now() - interval '1 second')"
        )
    assert waiting.beat(is_paused=True) is None
