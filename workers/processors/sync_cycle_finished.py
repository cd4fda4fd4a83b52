"""Ends a cycle: writes its run, the source's new state, and the next cycle if one was requested."""

from __future__ import annotations

from uuid import UUID

from archiver.logs import get_logger
from archiver.queue.jobs import JobEnvelope, SyncCycleFinished
from archiver.sources import upload_imports
from archiver.sources.kinds import RUNS_ONCE
from archiver.sources.service import plan_next
from archiver.sync import cycle, outbox
from workers.context import WorkerContext

log = get_logger("sync-cycle-finished")


def process(job: SyncCycleFinished, work: WorkerContext, envelope: JobEnvelope) -> dict[str, str]:
    """Its queue event notifies callers that wait for this source (archiver.queue.completion.CycleEnds)."""
    with work.engine.begin() as connection:
        ended = cycle.finish(connection, job.session_id, RUNS_ONCE)
        if ended:
            plan_next(connection, ended.source_id)
        outbox.settle(connection, UUID(envelope.id))
    if ended:
        upload_imports.remove_used(work.engine, work.settings)
        log.info("cycle_finished", source=str(ended.source_id), session=str(ended.session_id), outcome=ended.outcome)
    return {"ended_source": str(ended.source_id)} if ended else {}
