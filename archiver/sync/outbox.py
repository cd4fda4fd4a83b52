"""Announces jobs: a row is inserted in the transaction of its data, and deleted in the transaction of its effect."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.engine import json_text
from archiver.db.ids import uuid7
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
    """Returns the row's id, which becomes the job's id. If a row with the given `row_id` exists, nothing changes."""
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
    """Notifies the relay; Postgres delivers it when the transaction commits."""
    connection.execute(_NOTIFY, {"channel": CHANNEL, "queue": str(queue)})


def settle(connection: Connection, row_id: UUID) -> bool:
    """Deletes the row in the transaction of its job's effect. False if it is gone: the effect is already committed."""
    return connection.execute(text("DELETE FROM outbox WHERE id = :id"), {"id": row_id}).rowcount > 0


def is_open(connection: Connection, row_id: UUID) -> bool:
    return connection.execute(text("SELECT 1 FROM outbox WHERE id = :id"), {"id": row_id}).first() is not None
