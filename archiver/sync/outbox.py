"""Announces jobs: a row is inserted in the transaction of its data, and deleted in the transaction of its effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.ids import uuid7
from archiver.db.sql import Pipeline, query, rows, run
from archiver.queue.jobs import Job, QueueName
from archiver.tracing import current_trace

CHANNEL = "archiver_outbox"

# The notification is delivered when the transaction commits.
_ANNOUNCE = """
    WITH announced AS (
        INSERT INTO outbox (id, queue, job, payload, priority, source_id, session_id, available_at)
        SELECT id, queue, job, payload, priority, source_id, session_id, coalesce(available_at, now())
        FROM json_to_recordset(:rows::json) AS x(id uuid, queue text, job text, payload jsonb, priority smallint,
            source_id uuid, session_id uuid, available_at timestamptz)
        ON CONFLICT (id) DO NOTHING)
    SELECT pg_notify(:channel, :queue)"""
_NOTIFY = "SELECT pg_notify(:channel, :queue)"


def announce(
    connection: Connection | Pipeline,
    job: Job,
    *,
    source_id: UUID | None = None,
    session_id: UUID | None = None,
    row_id: UUID | None = None,
    available_at: datetime | None = None,
    caused_by: UUID | None = None,
    priority: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> UUID:
    """Returns the row's id, which becomes the job's id. If a row with the given `row_id` exists, nothing changes.

    `more` stays in the row, for what reads it there; the job does not carry it.
    """
    row = _row(job, source_id, session_id, caused_by)
    row |= {"id": row_id or row["id"], "available_at": available_at, "priority": priority or job.priority}
    row["payload"] |= more or {}
    _insert(connection, [row])
    announced: UUID = row["id"]
    return announced


def announce_all(
    connection: Connection, jobs: Iterable[Job], *, source_id: UUID, session_id: UUID, caused_by: UUID | None
) -> None:
    """Jobs of one queue."""
    _insert(connection, [_row(job, source_id, session_id, caused_by) for job in jobs])


def _row(job: Job, source_id: UUID | None, session_id: UUID | None, caused_by: UUID | None) -> dict[str, Any]:
    (queue,), trace = job.queues, current_trace()
    return {
        "id": uuid7(),
        "queue": str(queue),
        "job": job.name,
        "payload": {"data": job.data(), "cause": caused_by} | ({"trace": trace} if trace else {}),
        "priority": job.priority,
        "source_id": source_id,
        "session_id": session_id,
    }


def _insert(connection: Connection | Pipeline, announced: list[dict[str, Any]]) -> None:
    values = {"rows": rows(announced), "channel": CHANNEL, "queue": announced[0]["queue"]}
    if isinstance(connection, Pipeline):
        connection.send(_ANNOUNCE, **values)
    else:
        run(connection, _ANNOUNCE, **values)


def wake(connection: Connection, queue: QueueName) -> None:
    """Notifies the relay; Postgres delivers it when the transaction commits."""
    run(connection, _NOTIFY, channel=CHANNEL, queue=str(queue))


def settle(connection: Connection, row_id: UUID) -> bool:
    """Deletes the row in the transaction of its job's effect. False if it is gone: the effect is already committed."""
    return bool(query(connection, "DELETE FROM outbox WHERE id = :id RETURNING id", UUID, id=row_id))


def is_open(connection: Connection, row_id: UUID) -> bool:
    return bool(query(connection, "SELECT id FROM outbox WHERE id = :id", UUID, id=row_id))
