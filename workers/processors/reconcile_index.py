"""Compares the index with Postgres and repairs the differences."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from archiver.indexing import jobs as index_jobs
from archiver.indexing.reconcile import reconcile
from archiver.queue.jobs import JobEnvelope, ReconcileIndex
from archiver.sync import scheduler
from workers.context import WorkerContext


def process(_: ReconcileIndex, work: WorkerContext, __: JobEnvelope) -> dict[str, Any] | None:
    with scheduler.advisory_lock(work.engine, ReconcileIndex.name) as mine:
        if not mine:
            return None
        result = reconcile(work.engine, work.index.server)
        work.index.announce_rereading()
        index_jobs.settle_all(work.engine, ReconcileIndex())
        return asdict(result)
