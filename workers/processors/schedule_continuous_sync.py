"""The tick: starts the sources that are due, and ends sessions that make no more progress."""

from __future__ import annotations

from archiver.exports import service as exports
from archiver.logs import get_logger
from archiver.maintenance.backups import schedule as backups
from archiver.queue.jobs import JobEnvelope, ScheduleContinuousSync, SyncCycleFinished
from archiver.restores import service as restores
from archiver.retention import erasures
from archiver.sources import retries, upload_imports
from archiver.sync import import_queue, outbox, scheduler
from archiver.workflows import service as workflows
from workers.context import WorkerContext

log = get_logger("schedule-continuous-sync")


def process(_: ScheduleContinuousSync, work: WorkerContext, __: JobEnvelope) -> dict[str, int]:
    with scheduler.advisory_lock(work.engine, ScheduleContinuousSync.name) as mine:
        if not mine:
            return {"started": 0, "stale": 0}
        stale = _end_idle_sessions(work)
        with work.engine.begin() as connection:
            started = scheduler.start_due(connection, work.settings.sync_starts_per_tick, work.settings.sync_starts_per_owner)
            import_queue.start_orphaned(connection)
            retries.retry_due(connection)
            workflows.maintain(connection)
            restores.tidy(connection)
            backups.start_due(connection, work.settings)
            is_purging = erasures.is_purging(connection)
    if is_purging:
        work.ingest.archive.backend.release_idle()
    upload_imports.tidy(work.engine, work.settings)
    exports.tidy(work.engine, work.settings)
    if started or stale:
        log.info("tick", started=len(started), stale=stale)
    return {"started": len(started), "stale": stale}


def _end_idle_sessions(work: WorkerContext) -> int:
    """A session whose count is complete is finished. One without any announced job can't continue: it is stale."""
    minutes = work.settings.sync_stale_minutes
    with work.engine.begin() as connection:
        idle = scheduler.idle_sessions(connection, minutes)
        for session in idle:
            if session.complete:
                job = SyncCycleFinished(session.id)
                outbox.announce(connection, job, source_id=session.source_id, session_id=session.id, row_id=session.id)
        dead = [session.id for session in idle if not session.complete and not session.has_jobs]
        return len(scheduler.end_stale(connection, dead, minutes))
