"""Brings the holds up to date, and deletes what the retention policies say."""

from __future__ import annotations

from typing import Any

from archiver.maintenance.retention import apply
from archiver.queue.jobs import ApplyRetention, JobEnvelope
from workers.context import WorkerContext


def process(_: ApplyRetention, work: WorkerContext, __: JobEnvelope) -> dict[str, Any] | None:
    run = apply(work.settings, work.engine, work.ingest.archive, work.keyring, work.stopping.is_set)
    return None if run is None else {"run": str(run.id), "copies": run.copies, "messages": run.messages, "error": run.error}
