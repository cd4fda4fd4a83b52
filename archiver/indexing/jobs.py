"""The announcements of indexing work: which are open, which are announced, and which job comes next.

All announcements of a stage mean the same: find what is behind. One pass answers all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.db.sql import query, query_one, run
from archiver.indexing import statements
from archiver.queue.jobs import ATTACHMENTS_PRIORITY, REREADING_PRIORITY, IndexEmailBatch, Job
from archiver.sync import outbox

_OPEN = """
    SELECT id, payload->'deleted' AS deleted FROM outbox
    WHERE queue = 'indexing' AND job = 'index-email-batch' AND coalesce(payload->'data'->>'stage', 'body') = :stage
      AND available_at <= now() ORDER BY id"""
_CLOSE = "DELETE FROM outbox WHERE id = ANY(:ids)"
_IS_WAITING = """
    SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job AND sent_at IS NULL
        AND coalesce(payload->'data'->>'stage', 'body') = :stage)"""
_IS_ANNOUNCED = """
    SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job
        AND coalesce(payload->'data'->>'stage', 'body') = :stage)"""

_SETTLE_ALL = "DELETE FROM outbox WHERE queue = 'indexing' AND job = :job"

BODY = IndexEmailBatch()
ATTACHMENTS = IndexEmailBatch(IndexEmailBatch.ATTACHMENTS)
_IS_LEFT = {BODY.stage: statements.IS_BEHIND, ATTACHMENTS.stage: statements.IS_UNREAD}


@dataclass(frozen=True, slots=True)
class OpenAnnouncement:
    id: UUID
    deleted: list[str] | None


@dataclass(frozen=True, slots=True)
class Announcements:
    ids: list[UUID]
    deleted: list[str]
    """Messages whose documents have to be removed."""


def open_announcements(engine: Engine, job: IndexEmailBatch) -> Announcements:
    with engine.connect() as connection:
        rows = query(connection, _OPEN, OpenAnnouncement, stage=job.stage)
    return Announcements([row.id for row in rows], [message_id for row in rows for message_id in row.deleted or ()])


def close(engine: Engine, job: IndexEmailBatch, announced: Announcements, *, is_unfinished: bool) -> None:
    """Called when everything that could be leased is done or, with `is_unfinished`, when the slice is over.

    What another process has leased is checked once its lease has expired, because that process may have died. If it was reading
    attachments, the document is behind and its body comes first.
    """
    with engine.begin() as connection:
        run(connection, _CLOSE, ids=announced.ids)
        if is_unfinished:
            announce_once(connection, job)
            return
        for due in {job, BODY}:
            if query_one(connection, _IS_LEFT[due.stage], bool):
                announce_once(connection, due, after_seconds=statements.LEASE_SECONDS + 1)


def announce_attachments(engine: Engine) -> None:
    """Some messages are searchable except for their attachments."""
    with engine.begin() as connection:
        announce_once(connection, ATTACHMENTS)


def announce_rereading(connection: Connection) -> None:
    """Attachments that were read before come after everything else."""
    if not query_one(connection, _IS_WAITING, bool, **_parameters(ATTACHMENTS)):
        outbox.announce(connection, ATTACHMENTS, priority=REREADING_PRIORITY)


def announce_once(connection: Connection, job: Job, *, after_seconds: float = 0) -> None:
    """Does nothing if the same job is already waiting to be sent."""
    if not query_one(connection, _IS_WAITING, bool, **_parameters(job)):
        priority = ATTACHMENTS_PRIORITY if job == ATTACHMENTS else None
        available_at = datetime.now(UTC) + timedelta(seconds=after_seconds) if after_seconds else None
        outbox.announce(connection, job, priority=priority, available_at=available_at)


def announce_orphaned(connection: Connection, *others: Job) -> None:
    """Announces work that is due and has no job; `others` is work that the caller found."""
    wanted: list[Job] = [job for job in (BODY, ATTACHMENTS) if query_one(connection, _IS_LEFT[job.stage], bool)]
    for job in [*wanted, *others]:
        if not query_one(connection, _IS_ANNOUNCED, bool, **_parameters(job)):
            outbox.announce(connection, job, priority=ATTACHMENTS_PRIORITY if job == ATTACHMENTS else None)


def is_open(engine: Engine, row_id: UUID) -> bool:
    with engine.connect() as connection:
        return outbox.is_open(connection, row_id)


def settle(engine: Engine, row_id: UUID, next_job: Job | None = None) -> None:
    """Deletes the row and announces the next job, in one transaction."""
    with engine.begin() as connection:
        outbox.settle(connection, row_id)
        if next_job is not None:
            announce_once(connection, next_job)


def settle_all(engine: Engine, job: Job) -> None:
    """For a job that runs on a schedule and is announced as well: one run answers every announcement."""
    with engine.begin() as connection:
        run(connection, _SETTLE_ALL, job=job.name)


def _parameters(job: Job) -> dict[str, str]:
    return {"job": job.name, "stage": job.stage if isinstance(job, IndexEmailBatch) else BODY.stage}
