"""Simulates policies, goes on with erasures, brings holds up to date, sends their notices, and deletes what policies say."""

from __future__ import annotations

from typing import Any

from archiver.alerts import custodian_notices
from archiver.indexing import jobs as index_jobs
from archiver.maintenance.retention import apply, erase
from archiver.queue.jobs import ApplyRetention, JobEnvelope
from archiver.retention import simulation
from archiver.retention.runs import SYSTEM
from workers.context import WorkerContext


def process(_: ApplyRetention, work: WorkerContext, __: JobEnvelope) -> dict[str, Any] | None:
    index_jobs.settle_all(work.engine, ApplyRetention())  # what is announced from here on gets a run of its own
    simulation.run_requested(work.engine, work.ingest.archive, SYSTEM)
    erase(work.settings, work.engine, work.ingest.archive, work.keyring, work.stopping.is_set)
    custodian_notices.send_pending(work.engine, work.settings)
    run = apply(work.settings, work.engine, work.ingest.archive, work.keyring, work.stopping.is_set)
    return None if run is None else {"run": str(run.id), "copies": run.copies, "messages": run.messages, "error": run.error}
