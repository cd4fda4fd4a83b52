"""Records jobs that BullMQ has given up as failed in Postgres, with everything needed to retry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.ids import uuid7
from archiver.db.sql import query_optional
from archiver.db.states import RunOutcome
from archiver.db.values import json_text
from archiver.queue.jobs import BadJob, ContinuousSync, InitialImport, Job, JobEnvelope, ProcessMailbox
from archiver.queue.queues import FailedJob
from archiver.sync import cycle, import_queue, outbox, sessions

# The pause doubles with each attempt, because it is as long as all attempts before it together.
_KEEP = text("""
    INSERT INTO dead_letters (id, kind, source_id, queue, job, job_id, payload, reason, attempts, next_try_at)
    VALUES (:id, 'job', :source, :queue, :job, :job_id, CAST(:payload AS jsonb), :reason, :attempts,
        CASE WHEN :is_retried THEN now() + interval '10 minutes' END)
    ON CONFLICT (queue, job_id) WHERE kind = 'job' DO UPDATE SET reason = excluded.reason, payload = excluded.payload,
        attempts = dead_letters.attempts + excluded.attempts, last_failed_at = now(), discarded_at = NULL,
        next_try_at = CASE WHEN :is_retried THEN
            now() + least(interval '24 hours', greatest(interval '10 minutes', now() - dead_letters.created_at)) END""")
_SOURCE_OF_SESSION = "SELECT ingestion_source_id FROM sync_sessions WHERE id = :id"
_LISTING_SESSION = "SELECT id FROM sync_sessions WHERE ingestion_source_id = :id AND state = 'listing'"


Settler = Callable[[Connection, Job, UUID, str], None]
"""(connection, job, outbox row, reason): records a job of another room that was given up."""


def settle_failed(connection: Connection, failed: FailedJob, settlers: Mapping[str, Settler] | None = None) -> None:
    """Idempotent: a job that is already settled changes nothing."""
    try:
        envelope: JobEnvelope | None = JobEnvelope.decode(failed.name, failed.data)
    except BadJob:
        envelope = None
    job = envelope.job if envelope else None
    row_id = _uuid(failed.id)
    if row_id is not None and not outbox.is_open(connection, row_id):
        return  # its effect is already committed; a later job may own the mailbox or session that it names
    source_id = None
    if job is not None and row_id is not None and (settler := (settlers or {}).get(job.name)):
        settler(connection, job, row_id, failed.reason)
    elif isinstance(job, ProcessMailbox):
        _fail_mailbox(connection, job, failed.reason)
    else:
        if isinstance(job, ContinuousSync | InitialImport):
            source_id = _existing_source(connection, job.source_id)
            _fail_listing(connection, job.source_id, failed.reason)
            if isinstance(job, InitialImport) and (import_id := _uuid(job.import_id)):
                import_queue.fail(connection, import_id, job.source_id, failed.reason)
        is_import = isinstance(job, InitialImport) and bool(job.import_id)  # which runs once, and is repeated by people
        _store_dead_letter(connection, failed, source_id, is_retried=job is not None and row_id is not None and not is_import)
    if row_id is not None:
        outbox.settle(connection, row_id)


def _fail_mailbox(connection: Connection, job: ProcessMailbox, reason: str) -> None:
    source_id = query_optional(connection, _SOURCE_OF_SESSION, UUID, id=job.session_id)
    if source_id is not None:
        sessions.fail_mailbox(connection, job.session_id, job.mailbox_id, source_id, reason)


def _fail_listing(connection: Connection, source_id: UUID, reason: str) -> None:
    session_id = query_optional(connection, _LISTING_SESSION, UUID, id=source_id)
    if session_id is not None:
        cycle.abandon(connection, session_id, RunOutcome.FAILED, f"its mailboxes could not be listed: {reason}")


def _store_dead_letter(connection: Connection, failed: FailedJob, source_id: UUID | None, *, is_retried: bool) -> None:
    """`is_retried`: by itself. Jobs of a schedule are not, because it runs them again."""
    values = {"id": uuid7(), "source": source_id, "queue": str(failed.queue), "job": failed.name, "job_id": failed.id}
    payload = json_text(failed.data)
    more = {"payload": payload, "reason": failed.reason, "attempts": max(1, failed.attempts), "is_retried": is_retried}
    connection.execute(_KEEP, {**values, **more})


def _existing_source(connection: Connection, source_id: UUID) -> UUID | None:
    return query_optional(connection, "SELECT id FROM ingestion_sources WHERE id = :id", UUID, id=source_id)


def _uuid(value: str) -> UUID | None:
    try:
        return UUID(value)
    except ValueError:
        return None
