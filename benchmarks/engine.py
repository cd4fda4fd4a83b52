"""The sync engine: what a cycle costs beside the mail itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.config import load_settings
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.queue.jobs import JobEnvelope, ProcessMailbox, QueueName
from archiver.queue.queues import JobQueues
from archiver.secrets import create_missing_keys, credentials_keyring
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync import scheduler
from benchmarks.report import figure, load


def main() -> None:
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as place, servers(Path(place)) as (environment, engine, valkey):
        _idle_tick(engine)
        _redis_memory(valkey)
        with start_worker(environment):
            _empty_mailboxes(environment, engine)
            _batch_overhead(environment, engine)
            _small_beside_large(environment, engine)


@contextmanager
def servers(place: Path) -> Iterator[tuple[dict[str, str], Engine, EmbeddedValkey]]:
    folder = DataFolder(place / "data")
    folder.prepare()
    postgres, valkey = EmbeddedPostgres(folder), EmbeddedValkey(folder)
    postgres.prepare()
    valkey.prepare()
    with postgres.running(), valkey.running():
        own = {
            "ARCHIVER_DATA": str(folder.path),
            "DATABASE_URL": postgres.url(),
            "REDIS_URL": valkey.url(),
            "SYNC_FREQUENCY": "1d",
        }
        environment = {**os.environ, **own}
        create_missing_keys(load_settings(environment, Path("none")))
        engine = make_engine(postgres.url(), "bench")
        schema.migrate(engine)
        yield environment, engine, valkey
        engine.dispose()


@contextmanager
def start_worker(environment: dict[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "workers", "ingestion"]
    worker = subprocess.Popen(command, env={**environment, "LOG_LEVEL": "warning"}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


def sync(environment: dict[str, str], engine: Engine, name: str, **settings: Any) -> runs.Run:
    return runs.wait_for_run(engine, _start(environment, engine, name, **settings), None, 600, lambda _: None)


def _start(environment: dict[str, str], engine: Engine, name: str, **settings: Any) -> UUID:
    keyring = credentials_keyring(load_settings(environment, Path("none")))
    source = sources.add(engine, keyring, QuietContext(), "fake", name, settings, {})
    with engine.begin() as connection:
        sources.sync_now(connection, source)
    return source.id


def _empty_mailboxes(environment: dict[str, str], engine: Engine) -> None:
    sync(environment, engine, "warm", mailboxes=5, messages_per_mailbox=5)  # the worker is up
    run = sync(environment, engine, "empty", mailboxes=10_000, messages_per_mailbox=0, folders=["INBOX"])
    assert run.mailboxes == 10_000
    figure("a session of 10,000 empty mailboxes", run.seconds, "s", "≤ 60")


def _batch_overhead(environment: dict[str, str], engine: Engine) -> None:
    """The same mail in many small batches and in few large ones: the difference is what a batch costs."""
    common = {"mailboxes": 1, "messages_per_mailbox": 4000, "folders": ["INBOX"], "bytes_per_message": 500}
    few = sync(environment, engine, "few", **common, batch_messages=200, seed=11)
    many = sync(environment, engine, "many", **common, batch_messages=50, seed=12)  # smaller ones are stored together
    figure("one batch more, with its fsync and its commit", 1000 * (many.seconds - few.seconds) / (80 - 20), "ms", "≤ 10")
    figure("4,000 small messages in batches of 200", few.archived / few.seconds, "messages/s")


def _small_beside_large(environment: dict[str, str], engine: Engine) -> None:
    small = {"mailboxes": 20, "messages_per_mailbox": 50, "folders": ["INBOX"]}
    alone = sync(environment, engine, "small alone", **small, seed=21)
    large = _start(environment, engine, "large", mailboxes=100_000, messages_per_mailbox=20, folders=["INBOX"])
    while True:  # until its mailboxes are announced and the first ones run
        with engine.connect() as connection:
            progress = next(iter(runs.running(connection, large)), None)
        if progress is not None and progress.ended_mailboxes > 20:
            break
        time.sleep(0.5)
    beside = sync(environment, engine, "small beside", **small, seed=22)
    figure("a small source alone", alone.seconds, "s")
    figure("the same beside one with 100,000 mailboxes, times as long", beside.seconds / alone.seconds, "", "≤ 2")


def _idle_tick(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(1000):
            connection.execute(
                text(
                    "INSERT INTO ingestion_sources (id, kind, name, status, next_due_at)"
                    " VALUES (:id, 'fake', :name, 'active', now() + interval '1 day')"
                ),
                {"id": uuid7(), "name": f"idle {number}"},
            )
    started = time.monotonic()
    with scheduler.advisory_lock(engine, "bench"), engine.begin() as connection:
        scheduler.idle_sessions(connection, 30)
        assert scheduler.start_due(connection, 10) == []
    figure("an idle tick with 1,000 sources", time.monotonic() - started, "s", "≤ 1")


def _redis_memory(valkey: EmbeddedValkey) -> None:
    """The relay keeps a few jobs per slot in Redis, whatever waits in Postgres; here is what a job takes."""

    async def fill(url: str, jobs: int) -> None:
        async with JobQueues(url) as queues:
            batch = [JobEnvelope.of(ProcessMailbox(uuid7(), uuid7()), str(uuid7())) for _ in range(jobs)]
            await queues.add_bulk(QueueName.INGESTION, batch)

    client = valkey._client()
    before = int(client.info("memory")["used_memory"])
    asyncio.run(fill(valkey.url(), 1000))
    each = (int(client.info("memory")["used_memory"]) - before) / 1000
    client.flushall()
    client.close()
    under_way = 4 * load_settings({}, Path("none")).ingestion_worker_concurrency
    figure("Redis with 100,000 mailboxes pending (20 of them there)", each * under_way / 2**20, "MiB", "≤ 100")
    figure("one job in Redis", each, "bytes")


if __name__ == "__main__":
    main()
