"""`python -m workers ingestion|indexing`: one worker process on one queue."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from pathlib import Path

from archiver.config import Settings, load_settings
from archiver.db import make_engine, shares_connections
from archiver.errors import ArchiverError, ConfigError
from archiver.logs import get_logger, set_up_logs
from archiver.queue.buckets import Buckets
from archiver.queue.jobs import QueueName, ReconcileIndex, ScheduleContinuousSync
from archiver.secrets import credentials_keyring
from archiver.services import schema
from archiver.services.audit_anchors import Anchors
from archiver.services.catch_up import catch_up
from archiver.services.ingest import Ingest
from archiver.services.places import open_archive
from archiver.stack.ready import notify_ready
from archiver.sync.relay import Relay
from workers.anchoring import Anchoring
from workers.indexing import index_work
from workers.processors import PROCESSORS
from workers.runtime import WorkerProcess
from workers.watcher import Watcher
from workers.work import Work, is_outage

_INDEXING_CONCURRENCY = 4
"""One for each stage, one for what is scheduled, one for the rest: only one job of a stage works at a time."""
_SPARE_CONNECTIONS = 4
_LAST_SECONDS = 29.0
_ANCHOR_SECONDS = 5.0
_POOLED = (
    "DATABASE_URL leads to a pooler that shares connections between transactions. New jobs are found by polling, up to 5 s"
    " later, and nothing is prepared: an address of Postgres itself, or of a pooler in session mode, is faster."
)
_REST_SECONDS = 600.0
"""So long a batch of another machine may be on its way from the bucket into the database."""

log = get_logger("workers")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m workers", description="Runs one worker process until it gets SIGTERM.")
    made.add_argument("queue", choices=[str(name) for name in QueueName], help="the queue whose jobs it takes")
    made.add_argument(
        "--number", type=int, default=1, help="which of several processes on this queue it is (names its log file)"
    )
    made.add_argument("--alive-file", type=Path, help="a file that is touched every few seconds while the worker works")
    return made


def main() -> int:
    arguments = parser().parse_args()
    os.umask(0o077)  # whatever is written is for our own user only
    queue = QueueName(arguments.queue)
    try:
        settings = load_settings()
        part = queue if arguments.number == 1 else f"{queue}-{arguments.number}"
        set_up_logs(part, settings.log_level, settings.archiver_data / "logs")
        return _run(settings, queue, arguments.alive_file)
    except ArchiverError as error:
        sys.stderr.write(f"archiver: {error}\n")
        return error.exit_code


def _run(settings: Settings, queue: QueueName, alive_file: Path | None) -> int:
    if settings.database_url is None or settings.redis_url is None:
        raise ConfigError(
            "a worker needs DATABASE_URL and REDIS_URL; `archiver up` starts workers with those of the embedded servers"
        )
    database_url, redis_url = settings.database_url.get_secret_value(), settings.redis_url.get_secret_value()
    concurrency = settings.ingestion_worker_concurrency if queue is QueueName.INGESTION else _INDEXING_CONCURRENCY
    engine = make_engine(database_url, queue, pool_size=concurrency + _SPARE_CONNECTIONS)
    if shares_connections(engine):
        log.warning("database_is_pooled", hint=_POOLED)
    schema.check(engine)
    archive = open_archive(settings, engine)
    catch_up(engine, archive, _say, rest_seconds=_REST_SECONDS if settings.storage_type == "s3" else 0)
    stopping = threading.Event()
    index = index_work(settings, engine, archive, stopping) if queue is QueueName.INDEXING else None
    work = Work(
        settings,
        engine,
        Ingest(engine, archive),
        credentials_keyring(settings),
        Buckets(redis_url),
        stopping=stopping,
        _index=index,
    )
    schedules = {ScheduleContinuousSync(): settings.sync_frequency, ReconcileIndex(): settings.reconcile_frequency}
    relay = Relay(engine, database_url, redis_url, concurrency, settings.queue_max_depth, schedules)
    anchoring: threading.Thread | None = None
    if queue is QueueName.INGESTION:
        Watcher(work, database_url).start()
        syslog = settings.audit_syslog.get_secret_value() if settings.audit_syslog else None
        anchoring = Anchoring(Anchors(engine, archive, settings.archiver_data, syslog), stopping).start()
    worker = WorkerProcess(
        queue=queue,
        redis_url=redis_url,
        concurrency=concurrency,
        processors=PROCESSORS,
        work=work,
        is_outage=is_outage,
        wait_until_back=work.wait_until_back,
        on_stop=lambda: _stop(work),
        on_given_up=relay.job_failed,
        beside=relay.run if queue is QueueName.INGESTION else None,
        on_ready=notify_ready,
        alive_file=alive_file,
    )

    async def run_and_leave() -> None:
        """From inside the loop: neither a hung thread nor a task that can't be cancelled may keep the process."""
        code = await worker.run()
        if anchoring is not None:
            anchoring.join(_ANCHOR_SECONDS)
        archive.close()
        sys.stderr.flush()
        os._exit(code)

    asyncio.run(run_and_leave())
    return 1


def _say(sentence: str) -> None:
    """What follows may take longer than a part may take to start."""
    sys.stderr.write(f"archiver: {sentence}\n")
    notify_ready()


def _stop(work: Work) -> None:
    """Everything comes to an end, or is ended: nobody may be left to do it for us (the supervisor may be dead)."""
    work.stopping.set()
    work.let_go()
    end = threading.Timer(_LAST_SECONDS, os._exit, (1,))
    end.daemon = True
    end.start()


if __name__ == "__main__":
    sys.exit(main())
