"""Killing things while a session runs: workers, Valkey, Postgres. In the end the archive equals the undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.db import make_engine
from archiver.errors import NotReady
from archiver.services import schema
from archiver.services.sources import Source
from archiver.stack.folder import DataFolder
from archiver.stack.postgres import EmbeddedPostgres
from archiver.stack.valkey import EmbeddedValkey
from tests.acceptance.sync.world import World, eventually, new_world

MAILBOXES, MESSAGES = 12, 120
SETTINGS = {"mailboxes": MAILBOXES, "messages_per_mailbox": MESSAGES, "batch_messages": 10, "bytes_per_message": 500}


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres, INGESTION_WORKER_CONCURRENCY="4") as made:
        yield made


def check(world: World, source: Source, runs: int = 1) -> None:
    """The archive is complete, everything was counted once, exactly one finish ran for each session, and nothing is stuck."""
    archive = world.archive(source)
    assert len(archive) == MAILBOXES * MESSAGES
    found = world.rows("SELECT * FROM sync_runs WHERE source_id = :id", id=source.id)
    assert len(found) == runs
    assert sum(run.archived for run in found) == MAILBOXES * MESSAGES
    assert {run.outcome for run in found} == {"success"}
    assert found[0].completed_mailboxes == found[0].total_mailboxes == MAILBOXES
    world.assert_at_rest()


def wait_for_progress(world: World, source: Source, least: int) -> None:
    """Or the end of the cycle, if that comes first."""
    ended = "SELECT 1 FROM sync_runs WHERE source_id = :id"
    eventually(lambda: len(world.archive(source)) >= least or world.rows(ended, id=source.id), 90, "progress")


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
    eventually(lambda: "slice_ended" in log.read_text() or sleeper.poll() is not None, 30, "the end of its slices")
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

    eventually(stopped, 20, "a moment without a transaction")


def test_sigterm_gives_everything_back_and_ends_in_time(world: World) -> None:
    source = world.add("terminated", **SETTINGS, trouble={"slow_seconds": 0.1})
    before = world.start_sync(source)
    first = world.start_worker()
    wait_for_progress(world, source, 100)
    started = time.monotonic()
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
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
            eventually(lambda: "job_waits" in world.log(), 30, "jobs that wait")
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
def test_two_hundred_rounds_of_killing_workers(world: World) -> None:
    killed = 0
    for number in range(200):
        source = world.add(f"chaos-{number}", **SETTINGS, seed=number, trouble={"slow_seconds": 0.02})
        killed += kill_rounds(world, source, 20, seed=number)
        check(world, source)
        if killed >= 200:
            return
    pytest.fail(f"only {killed} kills in 200 sessions")


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_fifty_rounds_of_killing_servers_and_workers(tmp_path: Path) -> None:
    """Valkey, Postgres and workers, in any order, while sessions run."""
    chance = random.Random(7)
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
    servers = {"postgres": restarted(postgres), "valkey": restarted(valkey)}
    engine = make_engine(postgres.url(), "test")
    schema.migrate(engine)
    engine.dispose()
    world = World(tmp_path, postgres.url(), valkey, INGESTION_WORKER_CONCURRENCY="4")
    try:
        workers = [world.start_worker(), world.start_worker()]
        for number in range(50):
            source = world.add(f"all-{number}", **SETTINGS, seed=number, trouble={"slow_seconds": 0.02})
            before = world.start_sync(source)
            wait_for_progress(world, source, chance.randrange(50, 800))
            victim = chance.choice(["postgres", "valkey", "worker"])
            if victim == "worker":
                workers[0].kill()
                workers[0].wait()
                workers = [*workers[1:], world.start_worker()]
            else:
                server = postgres if victim == "postgres" else valkey
                world.engine.dispose()
                servers[victim].kill()
                servers[victim].wait()
                servers[victim] = restarted(server)
            world.wait(source, before, 240)
            check(world, source)
    finally:
        world.stop_workers()
        world.engine.dispose()
        for name, process in servers.items():
            process.send_signal((postgres if name == "postgres" else valkey).stop_signal)
            process.wait()


def restarted(server: EmbeddedPostgres | EmbeddedValkey) -> subprocess.Popen[bytes]:
    """As the supervisor does it: again, while Postgres still finds the memory of its killed predecessor in use."""
    for _ in range(20):
        server.prepare()
        process = server.start()
        threading.Thread(target=list, args=(process.stdout,), daemon=True).start()
        eventually(lambda process=process: answers(server) or process.poll() is not None, 60, "a server")
        if process.poll() is None:
            return process
        time.sleep(0.5)
    pytest.fail("the server does not start any more")


def answers(server: EmbeddedPostgres | EmbeddedValkey) -> bool:
    try:
        server.check()
    except NotReady:
        return False
    return True
