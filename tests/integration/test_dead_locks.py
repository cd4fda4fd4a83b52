"""Jobs of a killed worker: they go on with the next worker of the machine, while their locks have not expired."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from archiver.queue.completion import wait_for_job
from archiver.queue.connection import worker_client
from archiver.queue.jobs import Ping, QueueName
from archiver.queue.queues import JobQueues
from archiver.supervisor.valkey import EmbeddedValkey
from tests.support.waiting import DEADLINE_SECONDS, eventually
from workers import dead_locks
from workers.processors import PROCESSORS
from workers.runtime import WorkerProcess

INGESTION = QueueName.INGESTION
_HANGS = """
import asyncio, sys, threading
from archiver.queue.jobs import QueueName
from workers import runtime
from workers.runtime import WorkerProcess
runtime._LOCK_MS = 600_000  # longer than any test waits
hang = {"ping": lambda *_: threading.Event().wait()}
asyncio.run(WorkerProcess(QueueName.INGESTION, sys.argv[1], 2, hang).run())
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc")


@pytest.fixture
def hanging(valkey: EmbeddedValkey) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that has two jobs in hand, which never end."""

    async def add() -> None:
        async with JobQueues(valkey.url()) as queues:
            for name in ("one", "two"):
                await queues.add(INGESTION, Ping(name), name)

    asyncio.run(add())
    worker = subprocess.Popen([sys.executable, "-c", _HANGS, valkey.url()], stderr=subprocess.DEVNULL)
    eventually(lambda: len(locks(valkey)) == 2, DEADLINE_SECONDS, "both jobs taken")
    yield worker
    worker.kill()
    worker.wait()


def locks(valkey: EmbeddedValkey) -> list[str]:
    client = valkey._client()
    try:
        found = [client.get(f"bull:{INGESTION}:{name}:lock") for name in ("one", "two")]
        return [dead_locks._text(one) for one in found if one is not None]
    finally:
        client.close()


async def _released(valkey: EmbeddedValkey) -> int:
    client = worker_client(valkey.url())
    try:
        return await dead_locks.release_dead_locks(client, lambda name: f"bull:{INGESTION}:{name}")
    finally:
        await client.aclose()


def test_the_next_worker_goes_on_at_once(hanging: subprocess.Popen[bytes], valkey: EmbeddedValkey) -> None:
    hanging.kill()
    hanging.wait()
    assert len(locks(valkey)) == 2, "the locks outlive the process"
    processors = {**PROCESSORS, "ping": lambda job, *_: {"token": job.token}}
    worker = WorkerProcess(INGESTION, valkey.url(), 2, processors)

    async def run() -> tuple[Any, Any]:
        running = asyncio.create_task(worker.run())
        results = [await wait_for_job(valkey.url(), INGESTION, name, DEADLINE_SECONDS) for name in ("one", "two")]
        os.kill(os.getpid(), 15)
        assert await asyncio.wait_for(running, DEADLINE_SECONDS) == 0
        return results[0], results[1]

    assert asyncio.run(run()) == ({"token": "one"}, {"token": "two"})


def test_a_worker_that_lives_keeps_its_jobs(hanging: subprocess.Popen[bytes], valkey: EmbeddedValkey) -> None:
    before = locks(valkey)
    assert asyncio.run(_released(valkey)) == 0
    hanging.send_signal(19)  # stopped is not dead
    assert asyncio.run(_released(valkey)) == 0
    assert locks(valkey) == before


def test_several_that_start_at_once_release_each_job_once(hanging: subprocess.Popen[bytes], valkey: EmbeddedValkey) -> None:
    hanging.kill()
    hanging.wait()

    async def at_once() -> list[int]:
        return list(await asyncio.gather(*(_released(valkey) for _ in range(5))))

    assert sum(asyncio.run(at_once())) == 2
    client = valkey._client()
    stalled = {dead_locks._text(one) for one in client.smembers(f"bull:{INGESTION}:stalled")}
    client.close()
    assert stalled == {"one", "two"}


def test_only_what_is_certain_counts_as_dead() -> None:
    machine, pid, started, unique = dead_locks.process_id().split(".")
    assert not dead_locks.is_of_dead_process(f"{machine}.{pid}.{started}.{unique}:1")
    assert dead_locks.is_of_dead_process(f"{machine}.{pid}.{int(started) - 1}.{unique}:1"), "its number has another process now"
    for lock in ("", ":", "0b7c", "...", "0123456789abcdef." + f"{pid}.1.x:1", f"{machine}.-1.1.x:1", f"{machine}.x.1.x:1"):
        assert not dead_locks.is_of_dead_process(lock), lock
