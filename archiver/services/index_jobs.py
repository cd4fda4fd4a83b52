"""The announcements of indexing: what waits to be done, what was done with it, and who is called next.

All announcements of a stage mean the same: look for what is behind. One who has looked answers all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.queue.jobs import ATTACHMENTS_PRIORITY, IndexEmailBatch, Job, Reindex
from archiver.services import indexing_sql
from archiver.sync import outbox

_OPEN = text("""
    SELECT id, payload->'deleted' AS deleted FROM outbox
    WHERE queue = 'indexing' AND job = 'index-email-batch' AND coalesce(payload->'data'->>'stage', 'body') = :stage
      AND available_at <= now() ORDER BY id""")
_CLOSE = text("DELETE FROM outbox WHERE id = ANY(:ids)")
_IS_WAITING = text("""
    SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job AND sent_at IS NULL
        AND coalesce(payload->'data'->>'stage', 'body') = :stage)""")
_IS_ANNOUNCED = text("""
    SELECT EXISTS (SELECT 1 FROM outbox WHERE queue = 'indexing' AND job = :job
        AND coalesce(payload->'data'->>'stage', 'body') = :stage)""")

BODY = IndexEmailBatch()
ATTACHMENTS = IndexEmailBatch(IndexEmailBatch.ATTACHMENTS)
_IS_LEFT = {BODY.stage: text(indexing_sql.IS_BEHIND), ATTACHMENTS.stage: text(indexing_sql.IS_UNREAD)}


@dataclass(frozen=True, slots=True)
class Announcements:
    ids: list[UUID]
    deleted: list[str]
    """Messages whose documents have to go."""


def open_announcements(engine: Engine, job: IndexEmailBatch) -> Announcements:
    with engine.connect() as connection:
        rows = connection.execute(_OPEN, {"stage": job.stage}).all()
    return Announcements([row.id for row in rows], [message_id for row in rows for message_id in row.deleted or ()])


def answer(engine: Engine, job: IndexEmailBatch, answered: Announcements, *, goes_on: bool) -> None:
    """After everything that could be leased is done, or with `goes_on`, when it is another's turn.

    What another process has leased is looked after once its lease has ended: it may have died. If it was reading attachments,
    the document is behind since, and its body comes first.
    """
    with engine.begin() as connection:
        connection.execute(_CLOSE, {"ids": answered.ids})
        if goes_on:
            announce_once(connection, job)
            return
        for due in {job, BODY}:
            if connection.execute(_IS_LEFT[due.stage]).scalar():
                announce_once(connection, due, after_seconds=indexing_sql.LEASE_SECONDS + 1)


def ask_for_attachments(engine: Engine) -> None:
    """Some messages are searchable but for their attachments."""
    with engine.begin() as connection:
        announce_once(connection, ATTACHMENTS)


def announce_once(connection: Connection, job: Job, *, after_seconds: float = 0) -> None:
    """Nothing, if the same waits to be sent already."""
    if not connection.execute(_IS_WAITING, _described(job)).scalar():
        priority = ATTACHMENTS_PRIORITY if job == ATTACHMENTS else None
        available_at = datetime.now(UTC) + timedelta(seconds=after_seconds) if after_seconds else None
        outbox.announce(connection, job, priority=priority, available_at=available_at)


def announce_forgotten(connection: Connection, *, reindex: bool) -> None:
    """What is to be done and nobody was called for."""
    wanted: list[Job] = [job for job in (BODY, ATTACHMENTS) if connection.execute(_IS_LEFT[job.stage]).scalar()]
    for job in [*wanted, *([Reindex()] if reindex else [])]:
        if not connection.execute(_IS_ANNOUNCED, _described(job)).scalar():
            outbox.announce(connection, job, priority=ATTACHMENTS_PRIORITY if job == ATTACHMENTS else None)


def is_open(engine: Engine, row_id: UUID) -> bool:
    with engine.connect() as connection:
        return outbox.is_open(connection, row_id)


def settle(engine: Engine, row_id: UUID, next_job: Job | None = None) -> None:
    """The row goes, with the announcement of what follows."""
    with engine.begin() as connection:
        outbox.settle(connection, row_id)
        if next_job is not None:
            announce_once(connection, next_job)


def _described(job: Job) -> dict[str, str]:
    return {"job": job.name, "stage": job.stage if isinstance(job, IndexEmailBatch) else BODY.stage}
