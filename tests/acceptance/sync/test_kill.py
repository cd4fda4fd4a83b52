"""Killing things while a session runs: workers, Valkey, Postgres. In the end the archive equals the undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.errors import NotReady
from archiver.maintenance.checks.verify import verify
from archiver.sources.rows import Source
from archiver.store.open import open_archive
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.waiting import DEADLINE_SECONDS

MAILBOXES, MESSAGES = 12, 120
SETTINGS = {"mailboxes": MAILBOXES, "messages_per_mailbox": MESSAGES, "batch_messages": 10, "bytes_per_message": 500}


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres, INGESTION_WORKER_CONCURRENCY="4") as made:
        yield made


def check(world: World, source: Source, runs: int = 1, mailboxes: int = MAILBOXES, messages: int = MESSAGES) -> None:
    """The archive is complete, everything was counted once, exactly one finish ran for each session, and nothing is stuck."""
    archive = world.archive(source)
    assert len(archive) == mailboxes * messages
    found = world.rows("SELECT * FROM sync_runs WHERE source_id = :id", id=source.id)
    assert len(found) == runs
    assert sum(run.archived for run in found) == mailboxes * messages
    assert {run.outcome for run in found} == {"success"}
    assert found[0].completed_mailboxes == found[0].total_mailboxes == mailboxes
    world.assert_at_rest()


def wait_for_progress(world: World, source: Source, least: int) -> None:
    """Or the end of the cycle, if that comes first."""
    ended = "SELECT 1 FROM sync_runs WHERE source_id = :id"
    eventually(lambda: len(world.archive(source)) >= least or world.rows(ended, id=source.id), what="progress")


def kill_rounds(world: World, source: Source, rounds: int, seed: int) -> int:
    """Kills one of two workers again and again while the session runs. How often it came to that."""
    chance = random.Random(seed)
    before = world.start_sync(source)
    killed = 0
    workers = [world.start_worker(), world.start_worker()]
    for _ in range(rounds):
        wait_for_progress(world, source, len(world.archive(source)) + chance.randrange(1, 60))
        if world.rows("SELECT 1 FROM sync_runs WHERE source_id = :id", id=source.id):
            break
        victim = workers.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        killed += 1
        workers.append(world.start_worker())
    world.wait(source, before, 150)
    return killed


def test_killed_workers_lose_nothing_and_count_nothing_twice(world: World) -> None:
    source = world.add("killed", **SETTINGS, trouble={"slow_seconds": 0.05})
    assert kill_rounds(world, source, 3, seed=1) >= 2
    check(world, source)


def test_a_worker_that_wakes_up_late_changes_nothing(world: World) -> None:
    """It was stopped in the middle of its mailboxes, and another one finished them meanwhile."""
    source = world.add("asleep", **SETTINGS, trouble={"slow_seconds": 0.1})
    before = world.start_sync(source)
    sleeper = world.start_worker()
    wait_for_progress(world, source, 100)
    stop_between_transactions(world, sleeper)
    world.start_worker()
    world.wait(source, before, 120)
    archive = world.archive(source)
    os.kill(sleeper.pid, signal.SIGCONT)
    log = world.place / "worker-0.log"
    eventually(lambda: "slice_ended" in log.read_text() or sleeper.poll() is not None, what="the end of its slices")
    assert world.archive(source) == archive
    check(world, source)


def stop_between_transactions(world: World, worker: subprocess.Popen[bytes]) -> None:
    """(Inside one it would hold its mailbox until Postgres takes the transaction away, minutes later.)"""
    busy = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()"

    def stopped() -> bool:
        os.kill(worker.pid, signal.SIGSTOP)
        if not world.rows(busy):
            return True
        os.kill(worker.pid, signal.SIGCONT)
        return False

    eventually(stopped, what="a moment without a transaction")


@pytest.mark.alone
def test_sigterm_gives_everything_back_and_ends_in_time(world: World) -> None:
    source = world.add("terminated", **SETTINGS, trouble={"slow_seconds": 0.1})
    before = world.start_sync(source)
    first = world.start_worker()
    wait_for_progress(world, source, 100)
    started = time.monotonic()
    first.send_signal(signal.SIGTERM)
    assert first.wait(DEADLINE_SECONDS) == 0
    assert time.monotonic() - started < 15
    states = {row[0] for row in world.rows("SELECT state FROM sync_session_mailboxes")}
    assert "running" not in states
    assert len(world.archive(source)) < MAILBOXES * MESSAGES
    world.start_worker()
    world.wait(source, before)
    check(world, source)


def test_a_flushed_valkey_heals(world: World) -> None:
    source = world.add("flushed", **SETTINGS, trouble={"slow_seconds": 0.05})
    before = world.start_sync(source)
    world.start_worker()
    wait_for_progress(world, source, 200)
    client = world.valkey._client()
    client.flushall()
    client.close()
    world.wait(source, before, 90)
    check(world, source)


def test_a_killed_valkey_comes_back_to_its_jobs(world: World) -> None:
    source = world.add("valkey", **SETTINGS, trouble={"slow_seconds": 0.05})
    before = world.start_sync(source)
    world.start_worker()
    wait_for_progress(world, source, 200)
    client = world.valkey._client()
    pid = int(client.info("server")["process_id"])
    client.close()
    os.kill(pid, signal.SIGKILL)
    with EmbeddedValkey(world.valkey.folder).running():
        world.wait(source, before, 120)
        check(world, source)


def test_postgres_away_for_a_while_uses_up_no_job(tmp_path: Path) -> None:
    folder, valkey_folder = DataFolder(tmp_path / "pg"), DataFolder(tmp_path / "vk")
    folder.prepare()
    valkey_folder.prepare()
    server, valkey = EmbeddedPostgres(folder), EmbeddedValkey(valkey_folder)
    server.prepare()
    valkey.prepare()
    with valkey.running():
        with server.running():
            engine = make_engine(server.url(), "test")
            schema.migrate(engine)
            engine.dispose()
            world = World(tmp_path, server.url(), valkey, INGESTION_WORKER_CONCURRENCY="4")
            source = world.add("away", **SETTINGS, trouble={"slow_seconds": 0.05})
            before = world.start_sync(source)
            world.start_worker()
            wait_for_progress(world, source, 200)
            world.engine.dispose()
        try:
            eventually(lambda: "job_waits" in world.log(), what="jobs that wait")
            server.prepare()
            with server.running():
                world.wait(source, before, 90)
                check(world, source)
                assert "job_failed" not in world.log()
                world.engine.dispose()
        finally:
            world.stop_workers()


def test_nothing_is_taken_in_while_the_disk_is_full(tmp_path: Path, postgres: EmbeddedPostgres) -> None:
    with new_world(tmp_path, postgres, DISK_MIN_FREE_BYTES="900T") as world:
        source = world.add("full", **SETTINGS)
        before = world.start_sync(source)
        world.start_worker()
        run = world.wait(source, before)
        assert (run.outcome, run.archived) == ("failed", 0)
        assert "less than DISK_MIN_FREE_BYTES" in run.errors[0]["error"]
        world.stop_workers()
        world.environment["DISK_MIN_FREE_BYTES"] = "1"
        with world.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE mailboxes SET next_due_at = NULL")
        before = world.start_sync(source)
        world.start_worker()
        world.wait(source, before)
        assert len(world.archive(source)) == MAILBOXES * MESSAGES, "it continues where it was"


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_two_hundred_rounds_of_killing_workers_and_servers(tmp_path: Path) -> None:
    """Workers, Valkey and Postgres, while sessions of fifty mailboxes run; each is compared with an undisturbed one."""
    chance, killed, number = random.Random(7), 0, 0
    with breakable_world(tmp_path) as (world, servers):
        workers = [world.start_worker(), world.start_worker()]
        while killed < 200:
            number += 1
            settings = {**SETTINGS, "mailboxes": 50, "messages_per_mailbox": 60, "seed": number}
            source = world.add(f"disturbed-{number}", **settings, trouble={"slow_seconds": 0.02})
            before = world.start_sync(source)
            while killed < 200:
                wait_for_progress(world, source, len(world.archive(source)) + chance.randrange(1, 400))
                if world.rows("SELECT 1 FROM sync_runs WHERE source_id = :id", id=source.id):
                    break
                victim = chance.choice(["worker", "worker", "postgres", "valkey"])
                if victim == "worker":
                    workers[0].kill()
                    workers[0].wait()
                    workers = [*workers[1:], world.start_worker()]
                else:
                    world.engine.dispose()
                    servers[victim].kill()
                killed += 1
            world.wait(source, before, 240)
            check(world, source, mailboxes=50, messages=60)
            undisturbed = world.add(f"undisturbed-{number}", **settings)
            world.sync(undisturbed, 240)
            assert world.archive(undisturbed) == world.archive(source)
        archive = open_archive(world.settings, world.engine)
        report = verify(world.engine, archive, full=True)
        archive.close()
        assert report.is_healthy, report.problems


class Server:
    """A server that can be killed; it is started again as the supervisor does it."""

    def __init__(self, kind: EmbeddedPostgres | EmbeddedValkey) -> None:
        self.kind, self.process = kind, restarted(kind)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = restarted(self.kind)

    def stop(self) -> None:
        self.process.send_signal(self.kind.stop_signal)
        self.process.wait()


@contextmanager
def breakable_world(place: Path) -> Iterator[tuple[World, dict[str, Server]]]:
    folder = DataFolder(place / "data")
    folder.prepare()
    postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
    servers = {"postgres": Server(postgres), "valkey": Server(valkey)}
    engine = make_engine(postgres.url(), "test")
    schema.migrate(engine)
    engine.dispose()
    world = World(place, postgres.url(), valkey, INGESTION_WORKER_CONCURRENCY="4")
    try:
        yield world, servers
    finally:
        world.stop_workers()
        world.engine.dispose()
        for server in servers.values():
            server.stop()


def restarted(server: EmbeddedPostgres | EmbeddedValkey) -> subprocess.Popen[bytes]:
    """As the supervisor does it: again, while Postgres still finds the memory of its killed predecessor in use."""
    for _ in range(20):
        server.prepare()
        process = server.start()
        threading.Thread(target=drain, args=(process.stdout,), daemon=True).start()
        eventually(lambda process=process: answers(server) or process.poll() is not None, what="a server")
        if process.poll() is None:
            return process
        time.sleep(0.5)
    pytest.fail("the server does not start any more")


def drain(output: IO[bytes]) -> None:
    with output:
        list(output)


def answers(server: EmbeddedPostgres | EmbeddedValkey) -> bool:
    try:
        server.check()
    except NotReady:
        return False
    return True
