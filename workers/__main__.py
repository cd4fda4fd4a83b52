"""`python -m workers ingestion|indexing`: one worker process on one queue."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from archiver.alerts.channels import configured_channels
from archiver.config import Settings, load_settings
from archiver.db import schema
from archiver.db.counters import Counters
from archiver.db.engine import Database, make_engine, shares_connections
from archiver.db.pause import WorkerPresence
from archiver.db.worker_reports import WorkerReporter
from archiver.errors import ArchiverError, ConfigError
from archiver.evidence.anchors import Anchors
from archiver.indexing.pipeline import index_work
from archiver.logs import get_logger, set_up_logs
from archiver.maintenance.recovery.catch_up import catch_up
from archiver.maintenance.snapshot import ensure_signing_key
from archiver.queue.jobs import (
    AdvanceWorkflow,
    ApplyRetention,
    CompactPacks,
    EvaluateAlerts,
    QueueName,
    ReconcileIndex,
    ScheduleContinuousSync,
)
from archiver.secrets import credentials_keyring
from archiver.sources import retries
from archiver.store.archive import Archive
from archiver.store.open import open_archive
from archiver.store.sharing import check_packs_are_here
from archiver.supervisor.ready import notify_ready
from archiver.sync.ingest.store_batch import Ingest
from archiver.sync.quotas import Buckets
from archiver.sync.relay import Relay
from archiver.tracing import set_up_tracing, stop_tracing
from workers.anchoring import Anchoring
from workers.context import WorkerContext, is_outage
from workers.pausing import Pausing, was_resumed
from workers.processors import PROCESSORS, advance_workflow
from workers.runtime import PAUSED, WorkerProcess
from workers.watcher import PushWatcher

_INDEXING_CONCURRENCY = 4
"""One slot per stage, one for scheduled jobs, one for the rest: each stage runs only one job at a time."""
_SPARE_CONNECTIONS = 4
_ALERTS_EVERY = "1m"
_LAST_SECONDS = 29.0
"""Just before the 30 s after which the supervisor kills a part."""
_ANCHOR_SECONDS = 5.0
_POOLED = (
    "DATABASE_URL points to a pooler that shares connections between transactions. New jobs are found by polling, up to 5 s"
    " late, and statements are not prepared. Connect to Postgres directly, or to a pooler in session mode, for full speed."
)
_REST_SECONDS = 600.0
"""How long a batch of another machine may take from the bucket to the database."""

log = get_logger("workers")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m workers", description="Runs one worker process until it receives SIGTERM.")
    result.add_argument("queue", choices=[str(name) for name in QueueName], help="the queue to take jobs from")
    result.add_argument(
        "--number", type=int, default=1, help="number of this process on its queue, for the name of its log file"
    )
    result.add_argument("--alive-file", type=Path, help="file to touch every few seconds while the worker is healthy")
    return result


def main() -> int:
    arguments = parser().parse_args()
    os.umask(0o077)  # every file we write is readable by our own user only
    queue = QueueName(arguments.queue)
    try:
        settings = load_settings()
        part = queue if arguments.number == 1 else f"{queue}-{arguments.number}"
        set_up_logs(part, settings.log_level, settings.log_folder)
        set_up_tracing(queue)
        return _run(settings, queue, arguments.alive_file)
    except ArchiverError as error:
        sys.stderr.write(f"archiver: {error}\n")
        return error.exit_code


def _run(settings: Settings, queue: QueueName, alive_file: Path | None) -> int:
    database_url, redis_url = _server_urls(settings)
    configured_channels(settings)  # an address that can't be used stops the start, not the first alert
    concurrency = settings.ingestion_worker_concurrency if queue is QueueName.INGESTION else _INDEXING_CONCURRENCY
    engine = _open_database(database_url, queue, concurrency)
    pausing = Pausing(WorkerPresence.join(engine, queue), alive_file)
    pausing.begin_work(_report)
    archive = open_archive(settings, engine)
    check_packs_are_here(settings, engine, archive)
    # Before the first job, which would fetch and store again what only the packs know of.
    catch_up(engine, archive, _report, rest_seconds=_REST_SECONDS if settings.storage_type == "s3" else 0)
    work = _context(settings, engine, archive, queue, redis_url)
    reporter = WorkerReporter(engine, queue)
    counting = threading.Thread(target=work.counters.write_until, args=(work.stopping, engine, reporter.report), daemon=True)
    counting.start()
    relay = _relay(work, database_url, redis_url, concurrency)
    anchoring = _start_ingestion(work, archive, database_url) if queue is QueueName.INGESTION else None
    end = threading.Timer(_LAST_SECONDS, os._exit, (1,))
    end.daemon = True
    worker = WorkerProcess(
        queue=queue,
        redis_url=redis_url,
        concurrency=concurrency,
        processors=PROCESSORS,
        work=work,
        counters=work.counters,
        on_running=reporter.note_running,
        is_outage=is_outage,
        wait_until_back=work.wait_until_back,
        on_stop=lambda: _stop(work, end),
        pause_requested=pausing.requested,
        on_given_up=relay.job_failed,
        on_retried=partial(_reopen, work, queue),
        background=relay.run if queue is QueueName.INGESTION else None,
        on_ready=notify_ready,
        alive_file=alive_file,
    )
    asyncio.run(_run_and_leave(worker, work, archive, pausing, end, counting, anchoring))
    return 1


def _reopen(work: WorkerContext, queue: QueueName, job_id: str, name: str, data: Any) -> None:
    with work.engine.begin() as connection:
        retries.reopen(connection, queue, job_id, name, data)


def _server_urls(settings: Settings) -> tuple[str, str]:
    if settings.database_url is None or settings.redis_url is None:
        raise ConfigError("a worker needs DATABASE_URL and REDIS_URL; `archiver up` sets them to its embedded servers")
    return settings.database_url.get_secret_value(), settings.redis_url.get_secret_value()


def _open_database(database_url: str, queue: QueueName, concurrency: int) -> Database:
    engine = make_engine(database_url, queue, pool_size=concurrency + _SPARE_CONNECTIONS)
    if shares_connections(engine):
        log.warning("database_is_pooled", hint=_POOLED)
    schema.check(engine, accepts_newer=was_resumed())
    return engine


def _context(settings: Settings, engine: Database, archive: Archive, queue: QueueName, redis_url: str) -> WorkerContext:
    stopping = threading.Event()
    index = index_work(settings, engine, archive, stopping) if queue is QueueName.INDEXING else None
    if index is not None:
        threading.Thread(target=index.compare_if_replaced, daemon=True, name="compare-if-replaced").start()
    return WorkerContext(
        settings,
        engine,
        Ingest(engine, archive),
        credentials_keyring(settings),
        Buckets(redis_url),
        counters=Counters(),
        stopping=stopping,
        _index=index,
    )


def _relay(work: WorkerContext, database_url: str, redis_url: str, concurrency: int) -> Relay:
    settings = work.settings
    schedules = {
        ScheduleContinuousSync(): settings.sync_frequency,
        ReconcileIndex(): settings.reconcile_frequency,
        EvaluateAlerts(): _ALERTS_EVERY,
        ApplyRetention(): settings.retention_frequency,
        CompactPacks(): settings.compact_frequency,
    }
    settlers = {AdvanceWorkflow.name: advance_workflow.give_up}
    limits = (concurrency, settings.queue_max_depth, settings.import_slots)
    return Relay(work.engine, database_url, redis_url, *limits, schedules, settlers, work.counters)


def _start_ingestion(work: WorkerContext, archive: Archive, database_url: str) -> threading.Thread:
    """What runs beside the jobs of ingestion: the watcher of push notifications, and the anchoring of the audit log."""
    ensure_signing_key(work.engine, archive, work.keyring)
    PushWatcher(work, database_url).start()
    settings = work.settings
    syslog = settings.audit_syslog.get_secret_value() if settings.audit_syslog else None
    return Anchoring(Anchors(work.engine, archive, settings.archiver_data, syslog), work.stopping).start()


async def _run_and_leave(
    worker: WorkerProcess,
    work: WorkerContext,
    archive: Archive,
    pausing: Pausing,
    end: threading.Timer,
    counting: threading.Thread,
    anchoring: threading.Thread | None,
) -> None:
    """Exits from inside the loop, so that neither a hung thread nor an uncancellable task keeps the process alive."""
    code = await worker.run()
    if anchoring is not None:
        anchoring.join(_ANCHOR_SECONDS)
    stop_tracing()
    counting.join(_ANCHOR_SECONDS)
    work.counters.write(work.engine)  # what the last jobs counted
    archive.close()
    if code == PAUSED:
        end.cancel()
        pausing.wait_and_restart()
    pausing.leave()
    sys.stderr.flush()
    os._exit(code)


def _report(sentence: str) -> None:
    """Reports ready early: the recovery that follows may take longer than the supervisor's startup timeout."""
    sys.stderr.write(f"archiver: {sentence}\n")
    notify_ready()


def _stop(work: WorkerContext, end: threading.Timer) -> None:
    """Stops all work, and forces the exit after a deadline: the supervisor may be dead and unable to do it."""
    work.stopping.set()
    work.abort_long_work()
    end.start()


if __name__ == "__main__":
    sys.exit(main())
