"""The tick: starts the sources that are due, and looks after sessions in which nothing happens any more."""

from __future__ import annotations

from archiver.logs import get_logger
from archiver.queue.jobs import Envelope, ScheduleContinuousSync, SyncCycleFinished
from archiver.services import upload_imports
from archiver.sync import imports, outbox, tick
from workers.work import Work

log = get_logger("schedule-continuous-sync")


def process(_: ScheduleContinuousSync, work: Work, __: Envelope) -> dict[str, int]:
    with tick.exclusive(work.engine, ScheduleContinuousSync.name) as mine:
        if not mine:
            return {"started": 0, "stale": 0}
        stale = _look_after_sessions(work)
        with work.engine.begin() as connection:
            started = tick.start_due(connection)
            imports.start_forgotten(connection)
    upload_imports.tidy(work.engine, work.settings)
    if started or stale:
        log.info("tick", started=len(started), stale=stale)
    return {"started": len(started), "stale": stale}


def _look_after_sessions(work: Work) -> int:
    """A session whose count is complete is finished. One without any announced job can't go on: it is stale."""
    minutes = work.settings.sync_stale_minutes
    with work.engine.begin() as connection:
        idle = tick.idle_sessions(connection, minutes)
        for session in idle:
            if session.complete:
                job = SyncCycleFinished(session.id)
                outbox.announce(connection, job, source_id=session.source_id, session_id=session.id, row_id=session.id)
        dead = [session.id for session in idle if not session.complete and not session.has_jobs]
        return len(tick.end_stale(connection, dead, minutes))
