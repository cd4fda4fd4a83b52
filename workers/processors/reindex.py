"""Fills a new index for one slice; the last slice puts it in the place of the live one."""

from __future__ import annotations

from uuid import UUID

from archiver.queue.jobs import Envelope, Reindex
from archiver.services import index_jobs
from archiver.services.reindex import Reindex as Refill
from archiver.sync import tick
from workers.work import Work


def process(job: Reindex, work: Work, envelope: Envelope) -> None:
    row_id = UUID(envelope.id)
    if not index_jobs.is_open(work.engine, row_id):
        return None
    with tick.exclusive(work.engine, Reindex.name) as mine:
        if not mine:  # somebody is at it, and calls for more when it is needed
            return index_jobs.settle(work.engine, row_id)
        index = work.index
        refill = Refill(work.engine, index.archive, index.server, work.settings.meili_indexing_batch)
        is_done = refill.run(index.slice_over())
        return index_jobs.settle(work.engine, row_id, index_jobs.BODY if is_done else job)
