"""A worker process on a real Valkey: jobs get there and back, a restart loses none, a stop finishes what is in hand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from archiver.config import load_settings
from archiver.errors import NotReady
from archiver.queue.completion import wait_for_job
from archiver.queue.jobs import JOBS, BadJob, JobEnvelope, Ping, QueueName, options
from archiver.queue.queues import JobQueues, ping
from archiver.secrets import create_missing_keys
from archiver.supervisor.valkey import EmbeddedValkey
from tests.support.waiting import DEADLINE_SECONDS
from workers.processors import PROCESSORS
from workers.runtime import WorkerProcess

INGESTION = QueueName.INGESTION


class Process:
    """`python -m workers QUEUE` with a pipe for what it says."""

    def __init__(self, queue: str, database_url: str, redis_url: str, data: Path) -> None:
        environment = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "ARCHIVER_DATA": str(data)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers", queue],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def wait_for(self, event: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if event in line:
                return
        pytest.fail(f"the worker ended before {event}")

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(DEADLINE_SECONDS), said


@pytest.fixture
def start_worker(database_url: str, valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Callable[[str], Process]]:
    started: list[Process] = []
    create_missing_keys(load_settings({"ARCHIVER_DATA": str(tmp_path / "data")}, Path("none")))

    def start(queue: str) -> Process:
        started.append(Process(queue, database_url, valkey.url(), tmp_path / "data"))
        started[-1].wait_for("worker_ready")
        return started[-1]

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        with contextlib.suppress(ValueError):  # the test has read it to its end
            worker.process.communicate()


@pytest.mark.parametrize("queue", list(QueueName))
def test_a_job_gets_there_and_its_result_back(
    start_worker: Callable[[str], Process], valkey: EmbeddedValkey, queue: QueueName
) -> None:
    worker = start_worker(queue)
    assert asyncio.run(ping(valkey.url(), queue, DEADLINE_SECONDS)) > 0
    code, said = worker.stop(signal.SIGTERM)
    assert code == 0
    assert "worker_stopped" in said


def test_without_a_worker_the_caller_gets_a_clear_answer(valkey: EmbeddedValkey) -> None:
    with pytest.raises(NotReady, match="no worker took a job from the queue 'ingestion' within 1 s"):
        asyncio.run(ping(valkey.url(), INGESTION, timeout_seconds=1))


def test_jobs_survive_a_restart_of_valkey(start_worker: Callable[[str], Process], valkey: EmbeddedValkey) -> None:
    """Killed with jobs waiting and a worker connected; both find each other again."""

    async def add(names: list[str]) -> None:
        async with JobQueues(valkey.url()) as queues:
            for name in names:
                await queues.add(INGESTION, Ping(name), name)

    async def results(names: list[str]) -> list[Any]:
        return [await wait_for_job(valkey.url(), INGESTION, name, DEADLINE_SECONDS) for name in names]

    names = [f"job-{number}" for number in range(20)]
    asyncio.run(add(names))
    client = valkey._client()
    assert client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1, "on disk"
    pid = int(client.info("server")["process_id"])
    client.close()
    os.kill(pid, signal.SIGKILL)
    valkey.socket.unlink(missing_ok=True)
    with EmbeddedValkey(valkey.folder).running():
        start_worker(INGESTION)
        assert asyncio.run(results(names)) == [{"token": name} for name in names]


def test_a_connected_worker_outlives_valkey(start_worker: Callable[[str], Process], valkey: EmbeddedValkey) -> None:
    worker = start_worker(INGESTION)
    asyncio.run(ping(valkey.url(), INGESTION, DEADLINE_SECONDS))
    client = valkey._client()
    pid = int(client.info("server")["process_id"])
    client.close()
    os.kill(pid, signal.SIGKILL)
    with EmbeddedValkey(valkey.folder).running():
        assert asyncio.run(ping(valkey.url(), INGESTION, DEADLINE_SECONDS)) > 0
        assert worker.process.poll() is None


def test_a_worker_without_its_tables_says_so(empty_database_url: str, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    worker = Process(INGESTION, empty_database_url, valkey.url(), tmp_path / "data")
    _, said = worker.process.communicate(timeout=DEADLINE_SECONDS)
    assert worker.process.returncode == 1
    assert re.fullmatch(r"archiver: the database is missing \d+ migrations?: run `archiver migrate`\n", said)


def test_a_worker_without_addresses_says_so(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "ARCHIVER_DATA": str(tmp_path)}
    command = [sys.executable, "-m", "workers", "ingestion"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("archiver: a worker needs DATABASE_URL and REDIS_URL")


# --- inside one process: what the runtime does with a processor that misbehaves


class Harness:
    """The real runtime on the real Valkey, with processors of the test's own."""

    def __init__(self, url: str, processor: Callable[[Any], Any], drain_seconds: float = DEADLINE_SECONDS) -> None:
        self.url = url
        processors = {**PROCESSORS, "ping": lambda job, _work, _envelope: processor(job)}
        self.worker = WorkerProcess(INGESTION, url, 2, processors, drain_seconds=drain_seconds)

    async def run(self, act: Callable[[JobQueues], Any]) -> int:
        """Runs the worker, does `act`, then asks for a stop as the system would; gives the exit code."""
        running = asyncio.create_task(self.worker.run())
        async with JobQueues(self.url) as queues:
            await act(queues)
        os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(running, DEADLINE_SECONDS)


async def add(queues: JobQueues, name: str) -> None:
    await queues.add(INGESTION, Ping(name), name)


def test_a_stop_finishes_the_job_in_hand(valkey: EmbeddedValkey) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_: Ping) -> dict[str, str]:
        begun.set()
        assert may_end.wait(DEADLINE_SECONDS)
        ended.set()
        return {}

    async def act(queues: JobQueues) -> None:
        await add(queues, "slow-1")
        assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)
        asyncio.get_running_loop().call_later(0.3, may_end.set)  # the stop comes before the end

    assert asyncio.run(Harness(valkey.url(), slow).run(act)) == 0
    assert ended.is_set()

    async def state() -> Any:
        return await wait_for_job(valkey.url(), INGESTION, "slow-1", DEADLINE_SECONDS)

    assert asyncio.run(state()) == {}


@pytest.mark.alone
def test_a_job_that_does_not_end_is_left_after_the_deadline(valkey: EmbeddedValkey) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def stuck(_: Ping) -> None:
        begun.set()
        may_end.wait(DEADLINE_SECONDS)

    async def act(queues: JobQueues) -> None:
        await add(queues, "stuck-1")
        assert await asyncio.to_thread(begun.wait, DEADLINE_SECONDS)

    started = time.monotonic()
    assert asyncio.run(Harness(valkey.url(), stuck, drain_seconds=0.5).run(act)) == 1
    may_end.set()
    assert time.monotonic() - started < 15


def test_a_failing_processor_fails_its_job_and_nothing_else(valkey: EmbeddedValkey) -> None:
    def fails_once(job: Ping) -> dict[str, str]:
        if job.token == "bad":
            raise ValueError("no luck")
        if job.token == "cancelled":
            raise asyncio.CancelledError
        return {"token": job.token}

    async def act(queues: JobQueues) -> None:
        for name in ("bad", "cancelled", "good"):
            await add(queues, name)
        with pytest.raises(NotReady, match="bad failed: no luck"):
            await wait_for_job(valkey.url(), INGESTION, "bad", DEADLINE_SECONDS)
        with pytest.raises(NotReady, match="cancelled failed"):
            await wait_for_job(valkey.url(), INGESTION, "cancelled", DEADLINE_SECONDS)
        assert await wait_for_job(valkey.url(), INGESTION, "good", DEADLINE_SECONDS) == {"token": "good"}

    assert asyncio.run(Harness(valkey.url(), fails_once).run(act)) == 0


def test_jobs_of_a_newer_release_wait_for_its_workers(valkey: EmbeddedValkey) -> None:
    async def act(queues: JobQueues) -> None:
        bull = queues._queues[INGESTION]
        good = JobEnvelope.of(Ping("x"), "x").encode()
        for job_id, name, data in (("new-name", "no-such-job", good), ("new-version", "ping", {**good, "v": 2})):
            await bull.add(name, data, options(Ping, job_id))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while {await bull.getJobState(one) for one in ("new-name", "new-version")} != {"delayed"}:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert (await queues.counts(INGESTION))["failed"] == 0
        await queues.forget(INGESTION, ("new-name", "new-version"))

    assert asyncio.run(Harness(valkey.url(), lambda _: None).run(act)) == 0


def test_unknown_jobs_and_wrong_data_fail_for_good(valkey: EmbeddedValkey) -> None:
    async def act(queues: JobQueues) -> None:
        bull = queues._queues[INGESTION]
        before_the_upgrade = round(time.time() * 1000) - 2 * 3600 * 1000
        good = JobEnvelope.of(Ping("x"), "x").encode()
        wrong = {
            "unknown": ("no-such-job", good, "there is no job named 'no-such-job'"),
            "no-envelope": ("ping", {"token": "x"}, "the envelope is incomplete"),
            "newer": ("ping", {**good, "v": 2}, "unknown envelope version 2"),
            "wrong": ("ping", {**good, "data": {"token": 5}}, "token is not a string"),
        }
        for job_id, (name, data, expected) in wrong.items():
            await bull.add(name, data, {**options(Ping, job_id), "timestamp": before_the_upgrade})
            with pytest.raises(NotReady, match=expected):
                await wait_for_job(valkey.url(), INGESTION, job_id, DEADLINE_SECONDS)

    assert asyncio.run(Harness(valkey.url(), lambda _: None).run(act)) == 0


def test_the_process_ends_with_1_when_its_loop_dies(valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    from bullmq import Worker

    async def dies(_: Worker) -> None:
        raise RuntimeError("the loop broke")

    monkeypatch.setattr(Worker, "run", dies)
    assert asyncio.run(Harness(valkey.url(), lambda _: None).worker.run()) == 1


def test_a_hundred_jobs_that_end_at_once_are_all_noticed(
    start_worker: Callable[[str], Process], valkey: EmbeddedValkey
) -> None:
    """Some end before anybody listens, some while one does."""
    start_worker(INGESTION)

    async def one(queues: JobQueues, name: str) -> Any:
        await queues.add(INGESTION, Ping(name), name)
        return await wait_for_job(valkey.url(), INGESTION, name, DEADLINE_SECONDS)

    async def many() -> list[Any]:
        async with JobQueues(valkey.url()) as queues:
            return await asyncio.gather(*(one(queues, f"many-{number}") for number in range(100)))

    assert asyncio.run(many()) == [{"token": f"many-{number}"} for number in range(100)]


@pytest.mark.parametrize("data", [{}, {"token": "x", "more": 1}, {"token": None}, {"tokens": "x"}])
def test_a_job_checks_what_it_carries(data: dict[str, Any]) -> None:
    with pytest.raises(BadJob, match=r"^ping: "):
        Ping.from_data(data)


def test_every_job_has_a_processor_and_a_priority() -> None:
    assert set(JOBS) == set(PROCESSORS)
    for kind in JOBS.values():
        assert 1 <= kind.priority <= 2_097_152
        assert kind.queues
