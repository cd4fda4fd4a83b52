"""Announcing jobs: a row in the same transaction as the data it announces, gone in the transaction of its effect."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db import json_text
from archiver.models.ids import uuid7
from archiver.queue.jobs import Job, QueueName

CHANNEL = "archiver_outbox"

_ANNOUNCE = text(
    "INSERT INTO outbox (id, queue, job, payload, priority, source_id, session_id, available_at)"
    " VALUES (:id, :queue, :job, CAST(:payload AS jsonb), :priority, :source_id, :session_id, coalesce(:available_at, now()))"
    " ON CONFLICT (id) DO NOTHING"
)
_NOTIFY = text("SELECT pg_notify(:channel, :queue)")


def announce(
    connection: Connection,
    job: Job,
    *,
    source_id: UUID | None = None,
    session_id: UUID | None = None,
    row_id: UUID | None = None,
    available_at: datetime | None = None,
    caused_by: UUID | None = None,
    priority: int | None = None,
) -> UUID:
    """The id of the row, which will be the job's. A given `row_id` that is there already changes nothing."""
    row_id = row_id or uuid7()
    payload = {"data": job.data(), "cause": str(caused_by) if caused_by else None}
    (queue,) = job.queues
    values = {
        "id": row_id,
        "queue": queue,
        "job": job.name,
        "payload": json_text(payload),
        "priority": priority or job.priority,
    }
    values |= {"source_id": source_id, "session_id": session_id, "available_at": available_at}
    connection.execute(_ANNOUNCE, values)
    wake(connection, queue)
    return row_id


def wake(connection: Connection, queue: QueueName) -> None:
    """Delivered when the transaction commits."""
    connection.execute(_NOTIFY, {"channel": CHANNEL, "queue": str(queue)})


def settle(connection: Connection, row_id: UUID) -> bool:
    """Removes the row, with the effect of its job. False: it is gone, so the effect is there already."""
    return connection.execute(text("DELETE FROM outbox WHERE id = :id"), {"id": row_id}).rowcount > 0


def is_open(connection: Connection, row_id: UUID) -> bool:
    return connection.execute(text("SELECT 1 FROM outbox WHERE id = :id"), {"id": row_id}).first() is not None
