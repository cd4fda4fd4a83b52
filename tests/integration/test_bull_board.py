"""Bull Board on our queues: what it shows is true, and a retry there works. It needs npm, and skips without it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.db.worker_reports import process_name
from archiver.queue.job_report import report_progress
from archiver.queue.jobs import Job, JobEnvelope, QueueName, ReindexJob
from archiver.queue.queues import JobQueues
from archiver.sources import retries
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync import outbox
from archiver.sync.relay import Relay
from tests.support.waiting import DEADLINE_SECONDS, eventually
from workers.runtime import WorkerProcess

SERVER = Path(__file__).parents[2] / "deploy" / "bullboard"
PASSWORD = "for this test only"


@pytest.fixture(scope="module")
def installed() -> Path:
    """The packages of the lock file, installed once for all runs on this machine."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    lock = (SERVER / "package-lock.json").read_bytes()
    folder = Path(tempfile.gettempdir()) / f"archiver-bull-board-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (folder / "installed").exists():
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SERVER / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_SECONDS * 4)
        if done.returncode:
            pytest.skip(f"npm can't install Bull Board: {done.stderr.strip().splitlines()[-1:]}")
        (folder / "installed").touch()
    shutil.copy(SERVER / "server.mjs", folder)
    return folder


@pytest.fixture
def board(installed: Path, valkey: EmbeddedValkey) -> Iterator[str]:
    environment = {"REDIS_URL": valkey.url(), "BULL_BOARD_PASSWORD": PASSWORD, "BULL_BOARD_PORT": "0"}
    node = shutil.which("node")
    assert node is not None
    process = subprocess.Popen([node, "server.mjs"], cwd=installed, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "Bull Board at" in line, line
    yield line.split()[-1]
    process.send_signal(signal.SIGTERM)
    process.wait(DEADLINE_SECONDS)
    process.stdout.close()


def ask(board: str, path: str, method: str = "GET", password: str = PASSWORD) -> Any:
    request = urllib.request.Request(board + path, method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"archiver:{password}".encode()).decode())
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        body = answer.read()
    return json.loads(body) if body else None


def jobs(board: str, state: str) -> list[dict[str, Any]]:
    found = ask(board, f"/api/queues?activeQueue=indexing&status={state}&page=1&jobsPerPage=10")
    (queue,) = [one for one in found["queues"] if one["name"] == "indexing"]
    return list(queue["jobs"])


def worker_names(board: str, queue: str) -> set[str]:
    return {one["name"].partition(":w:")[2] or one["name"] for one in ask(board, f"/api/queues/{queue}/workers")["workers"]}


class Work:
    """A reindex that fails until it is mended, and waits in the middle."""

    def __init__(self, engine: Engine, url: str) -> None:
        self.engine, self.url, self.mended, self.ran = engine, url, False, 0
        self.relay = Relay(engine, "", url, 1, 10, 1)

    def process(self, job: Job, _: Any, envelope: JobEnvelope) -> None:
        report_progress(3, 12)
        if not self.mended:
            raise ValueError("the index is broken")
        with self.engine.begin() as connection:
            self.ran += outbox.settle(connection, UUID(envelope.id))

    def reopen(self, job_id: str, name: str, data: Any) -> None:
        with self.engine.begin() as connection:
            retries.reopen(connection, "indexing", job_id, name, data)

    async def settle(self) -> None:
        async with JobQueues(self.url) as queues:
            await self.relay._settle_failed(queues)

    async def send(self) -> None:
        async with JobQueues(self.url) as queues:
            await self.relay._send(queues, QueueName.INDEXING)

    def worker(self) -> WorkerProcess:
        return WorkerProcess(
            QueueName.INDEXING, self.url, 1, {ReindexJob.name: self.process}, on_retried=self.reopen, drain_seconds=5
        )


@pytest.fixture
def work(engine: Engine, valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(ReindexJob, "attempts", 1)
    return Work(engine, valkey.url())


async def _until(condition: Any) -> Any:
    return await asyncio.to_thread(eventually, condition)


def test_it_shows_the_truth_and_a_retry_works(board: str, engine: Engine, work: Work) -> None:
    with engine.begin() as connection:
        row_id = outbox.announce(connection, ReindexJob())

    async def play() -> None:
        running = asyncio.create_task(work.worker().run())
        try:
            await _until(lambda: worker_names(board, "indexing") == {process_name()})
            assert worker_names(board, "ingestion") == set()
            await work.send()
            (failed,) = await _until(lambda: jobs(board, "failed"))
            assert (failed["id"], failed["failedReason"]) == (str(row_id), "the index is broken")
            assert failed["progress"] == {"done": 3, "total": 12}
            await work.settle()
            await work.settle()
            assert [one["id"] for one in jobs(board, "failed")] == [str(row_id)], "it stays visible"
            logs = ask(board, f"/api/queues/indexing/{row_id}/logs")
            assert "begun by" in logs[0]
            assert "failed: the index is broken" in logs[-1]
            assert _count(engine, "dead_letters") == 1
            assert _count(engine, "outbox") == 0
            work.mended = True
            ask(board, f"/api/queues/indexing/{row_id}/retry", "PUT")
            (done,) = await _until(lambda: jobs(board, "completed"))
            assert (done["id"], done["progress"], work.ran) == (str(row_id), 100, 1)
            assert _count(engine, "dead_letters") == 0
            assert _count(engine, "outbox") == 0
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_a_retry_that_fails_again_is_a_dead_letter_again(board: str, engine: Engine, work: Work) -> None:
    with engine.begin() as connection:
        row_id = outbox.announce(connection, ReindexJob())

    async def play() -> None:
        running = asyncio.create_task(work.worker().run())
        try:
            await work.send()
            await _until(lambda: jobs(board, "failed"))
            await work.settle()
            ask(board, f"/api/queues/indexing/{row_id}/retry", "PUT")
            await _until(lambda: _count(engine, "outbox") == 1)
            await _until(lambda: jobs(board, "failed"))
            await work.settle()
            assert _count(engine, "dead_letters") == 1
            assert _count(engine, "outbox") == 0
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_without_the_password_it_shows_nothing(board: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(board, "/api/queues", password="wrong")


def _count(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())
