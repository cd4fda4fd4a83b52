"""The work of each tick: starts the sources that are due, and ends the sessions that have died."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db.engine import held_lock
from archiver.db.sql import query
from archiver.db.states import RunOutcome, SourceStatus
from archiver.queue.jobs import ContinuousSync, InitialImport, Job
from archiver.sync import cycle, outbox
from archiver.sync.transitions import SOURCE_BREAKS, before

# Owners take turns, and of each owner the source that has waited longest comes first: an owner of many sources gets every start
# that the others leave. One with a session or an announced cycle is running; those that are still being listed use up starts,
# because a listing is the expensive part of a start.
_DUE = """
    SELECT id, never_ran FROM (
        SELECT s.id, s.next_due_at, s.last_started_at IS NULL AS never_ran,
               row_number() OVER (PARTITION BY s.owner_id ORDER BY s.next_due_at NULLS FIRST, s.id) AS turn
        FROM ingestion_sources s
        WHERE s.removed_at IS NULL AND s.status IN ('pending', 'active', 'error')
          AND CASE WHEN s.next_due_at IS NULL THEN s.status <> 'error' ELSE s.next_due_at <= now() END
          AND NOT EXISTS (SELECT 1 FROM sync_sessions x WHERE x.ingestion_source_id = s.id)
          AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.source_id = s.id AND o.job IN ('continuous-sync', 'initial-import'))
    ) AS due
    WHERE turn <= :per_owner OR :per_owner = 0
    ORDER BY turn, next_due_at NULLS FIRST, id LIMIT greatest(0, :limit - (
        SELECT count(*) FROM sync_sessions WHERE state = 'listing') - (
        SELECT count(*) FROM outbox WHERE job IN ('continuous-sync', 'initial-import') AND sent_at IS NULL))"""

_STALE = """
    SELECT x.id, x.ingestion_source_id AS source_id,
           x.total_mailboxes = x.completed_mailboxes + x.failed_mailboxes AND x.state = 'running' AS complete,
           EXISTS (SELECT 1 FROM outbox o WHERE o.queue = 'ingestion' AND (o.session_id = x.id
               OR (x.state = 'listing' AND o.source_id = x.ingestion_source_id))) AS has_jobs
    FROM sync_sessions x
    WHERE x.last_activity_at < now() - :minutes * interval '1 minute' ORDER BY x.id"""


@dataclass(frozen=True, slots=True)
class DueSource:
    id: UUID
    never_ran: bool


def advisory_lock(engine: Engine, job_name: str) -> AbstractContextManager[bool]:
    """Holds a Postgres advisory lock for the block; yields False if another run of the job holds it."""
    return held_lock(engine, f"archiver:{job_name}")


def start_due(connection: Connection, limit: int, per_owner: int = 0) -> list[UUID]:
    """Announces a cycle for sources that are due, owners in turn: at most `limit`, and `per_owner` for each if it is not 0."""
    rows = query(connection, _DUE, DueSource, per_owner=per_owner, limit=limit)
    for row in rows:
        job: Job = InitialImport(row.id) if row.never_ran else ContinuousSync(row.id)
        outbox.announce(connection, job, source_id=row.id)
    return [row.id for row in rows]


@dataclass(frozen=True, slots=True)
class IdleSession:
    id: UUID
    source_id: UUID
    complete: bool
    """All of its mailboxes have ended."""
    has_jobs: bool
    """An outbox row belongs to it: a row lives until its effect is committed."""


def idle_sessions(connection: Connection, stale_minutes: int) -> list[IdleSession]:
    return query(connection, _STALE, IdleSession, minutes=stale_minutes)


def end_stale(connection: Connection, session_ids: Iterable[UUID], stale_minutes: int) -> list[UUID]:
    """What was archived stays; the source starts over at a later tick, and duplicates are skipped."""
    ended = []
    for session_id in session_ids:
        message = f"ended after {stale_minutes} minutes without progress: no job was left that could continue it"
        if cycle.abandon(connection, session_id, RunOutcome.STALE, message):
            ended.append(session_id)
    return ended


def mark_source_broken(connection: Connection, source_id: UUID, message: str) -> None:
    """For refused credentials: without a next due time, nothing is retried until an administrator edits the source."""
    connection.execute(
        text(
            "UPDATE ingestion_sources SET status = :status, status_message = :message, next_due_at = NULL, updated_at = now()"
            " WHERE id = :id AND status = ANY(:before)"
        ),
        {
            "id": source_id,
            "status": str(SourceStatus.ERROR),
            "message": message,
            "before": before(SOURCE_BREAKS, SourceStatus.ERROR),
        },
    )
