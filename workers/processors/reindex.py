"""Fills a new index for one slice; the last slice swaps it for the live index."""

from __future__ import annotations

from uuid import UUID

from archiver.indexing import jobs as index_jobs
from archiver.indexing.reindex import ReindexRun as Refill
from archiver.queue.jobs import JobEnvelope, ReindexJob
from archiver.sync import scheduler
from workers.context import WorkerContext


def process(job: ReindexJob, work: WorkerContext, envelope: JobEnvelope) -> None:
    row_id = UUID(envelope.id)
    if not index_jobs.is_open(work.engine, row_id):
        return None
    with scheduler.advisory_lock(work.engine, ReindexJob.name) as mine:
        if not mine:  # another job is filling it, and announces the next slice when one is needed
            return index_jobs.settle(work.engine, row_id)
        index = work.index
        refill = Refill(work.engine, index.archive, index.server, work.settings.meili_indexing_batch)
        is_done = refill.run(index.slice_over())
        return index_jobs.settle(work.engine, row_id, index_jobs.BODY if is_done else job)
