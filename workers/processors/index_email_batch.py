"""Updates search documents: bodies first, then, as jobs of lower priority, the text of attachments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from archiver.indexing import jobs as index_jobs
from archiver.indexing.pipeline import run_or_notify
from archiver.queue.jobs import IndexEmailBatch, JobEnvelope
from workers.context import WorkerContext


def process(job: IndexEmailBatch, work: WorkerContext, envelope: JobEnvelope) -> dict[str, Any] | None:
    if not index_jobs.is_open(work.engine, UUID(envelope.id)):
        return None  # a later job has covered it
    return run_or_notify(work.index, job)
