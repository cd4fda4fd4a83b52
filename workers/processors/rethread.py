"""Applies the present rules of conversations to threads that older ones made, for one slice."""

from __future__ import annotations

from uuid import UUID

from archiver.indexing import jobs as index_jobs
from archiver.indexing.rethread import rethread
from archiver.queue.jobs import JobEnvelope, RethreadJob
from archiver.sync import scheduler
from workers.context import WorkerContext


def process(job: RethreadJob, work: WorkerContext, envelope: JobEnvelope) -> None:
    row_id = UUID(envelope.id)
    if not index_jobs.is_open(work.engine, row_id):
        return None
    with scheduler.advisory_lock(work.engine, RethreadJob.name) as mine:
        if not mine:  # another worker is at it, and announces the next slice
            return index_jobs.settle(work.engine, row_id)
        is_done = rethread(work.engine, work.index.slice_over())
        return index_jobs.settle(work.engine, row_id, None if is_done else job)
