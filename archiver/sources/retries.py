"""Retries jobs and documents that failed permanently, at growing intervals; messages are retried by the cycles of their source.

A job that is retried keeps its dead letter until it has succeeded, so that the next failure counts from the first one. Not
retried: file imports, which run once, and jobs of a schedule, which runs them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, run
from archiver.indexing.statements import PARSER_MARK
from archiver.logs import get_logger
from archiver.queue.jobs import BadJob, IndexEmailBatch, JobEnvelope
from archiver.sync import outbox

_AT_ONCE = 1_000
_MARK = "retried"
"""In the payload of a job's letter while its job is announced again."""

log = get_logger("retries")

# A retry that has succeeded deleted its row of the outbox; one that failed again was recorded in the letter, without the mark.
_DROP_SUCCEEDED = """
    DELETE FROM dead_letters d WHERE d.kind = 'job' AND d.payload ? :mark AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE CAST(o.id AS text) = d.job_id)"""
_DUE_JOBS = """
    SELECT id, job, payload, source_id FROM dead_letters
    WHERE kind = 'job' AND discarded_at IS NULL AND next_try_at <= now() ORDER BY next_try_at
    LIMIT :limit FOR UPDATE SKIP LOCKED"""
_ANNOUNCED = """
    UPDATE dead_letters SET job_id = :job_id, next_try_at = NULL,
        payload = payload || jsonb_build_object(CAST(:mark AS text), true) WHERE id = :id"""
_GIVE_UP = "UPDATE dead_letters SET next_try_at = NULL WHERE id = :id"
# At once if they failed with another parser: the present one may be able to read them.
_DUE_DOCUMENTS = """
    WITH due AS (
        SELECT id, message_id FROM dead_letters WHERE kind = 'document' AND discarded_at IS NULL
          AND (next_try_at <= now() OR next_try_at IS NULL OR payload ->> 'parser' IS DISTINCT FROM :parser)
        ORDER BY next_try_at LIMIT :limit FOR UPDATE SKIP LOCKED),
    postponed AS (
        UPDATE dead_letters d SET payload = d.payload || jsonb_build_object('parser', CAST(:parser AS text)),
            next_try_at = now() + least(interval '24 hours', greatest(interval '10 minutes', now() - d.created_at))
        FROM due WHERE d.id = due.id)
    UPDATE messages m SET index_version = m.index_version + 1 FROM due WHERE m.id = due.message_id RETURNING m.id"""


@dataclass(frozen=True, slots=True)
class DueJob:
    id: UUID
    job: str
    payload: dict[str, Any]
    source_id: UUID | None


@dataclass(frozen=True, slots=True)
class RetriedWork:
    jobs: int
    documents: int


def retry_due(connection: Connection) -> RetriedWork:
    """Announces the jobs and documents whose next attempt is due."""
    run(connection, _DROP_SUCCEEDED, mark=_MARK)
    jobs = sum(_retry_job(connection, letter) for letter in query(connection, _DUE_JOBS, DueJob, limit=_AT_ONCE))
    documents = query(connection, _DUE_DOCUMENTS, UUID, parser=PARSER_MARK, limit=_AT_ONCE)
    if documents:
        outbox.announce(connection, IndexEmailBatch())
    if jobs or documents:
        log.info("dead_letters_retried", jobs=jobs, documents=len(documents))
    return RetriedWork(jobs, len(documents))


def _retry_job(connection: Connection, letter: DueJob) -> bool:
    try:
        envelope = JobEnvelope.decode(letter.job, letter.payload)
    except BadJob:
        run(connection, _GIVE_UP, id=letter.id)  # of another release: only a person can decide
        return False
    job_id = outbox.announce(connection, envelope.job, source_id=letter.source_id)
    run(connection, _ANNOUNCED, id=letter.id, job_id=str(job_id), mark=_MARK)
    return True


_REOPEN = (
    "DELETE FROM dead_letters WHERE kind = 'job' AND queue = :queue AND job_id = :id RETURNING id, job, payload, source_id"
)


def reopen(connection: Connection, queue: str, job_id: str, name: str, data: Any) -> None:
    """A job that was given up runs again, because a person retried it in the queue: its dead letter goes, and it has an outbox
    row again, without which it would do nothing. If it fails once more, both are settled as before."""
    found = query(connection, _REOPEN, DueJob, queue=queue, id=job_id)
    try:
        row_id, job = UUID(job_id), JobEnvelope.decode(name, data).job
    except (ValueError, BadJob):
        return  # a job of a schedule, which needs no row; or one that can't run
    if found:
        outbox.announce(connection, job, source_id=found[0].source_id, row_id=row_id)
