"""What an operator does to queues and schedules: pause, resume, drain, run a schedule now, send jobs again."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db.sql import query
from archiver.errors import UsageError
from archiver.queue.jobs import CompactPacks, EvaluateAlerts, Job, QueueName, ReconcileIndex, ScheduleContinuousSync
from archiver.queue.queues import JobQueues

SCHEDULES: dict[str, Job] = {
    job.name: job for job in (ScheduleContinuousSync(), ReconcileIndex(), EvaluateAlerts(), CompactPacks())
}
_POLL_SECONDS = 0.5
_REQUEUE = "UPDATE outbox SET sent_at = NULL WHERE queue = :queue AND sent_at IS NOT NULL RETURNING id"


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: str
    paused: bool
    counts: dict[str, int]
    workers: list[str]


def queue_named(name: str) -> QueueName:
    try:
        return QueueName(name)
    except ValueError:
        raise UsageError(f"there is no queue {name[:40]!r}: expected {' or '.join(QueueName)}") from None


def pause_queue(engine: Engine, redis_url: str, queue: QueueName, principal: Principal) -> QueueStatus:
    """Running jobs finish, and none is begun until the queue is resumed. New jobs are still added."""
    status = _run(redis_url, queue, lambda queues: queues.pause(queue))
    _record(engine, principal, "queue.paused", queue)
    return status


def resume_queue(engine: Engine, redis_url: str, queue: QueueName, principal: Principal) -> QueueStatus:
    status = _run(redis_url, queue, lambda queues: queues.resume(queue))
    _record(engine, principal, "queue.resumed", queue)
    return status


def drain_queue(engine: Engine, redis_url: str, queue: QueueName, principal: Principal, wait_seconds: float) -> QueueStatus:
    """Pauses the queue and waits until no job runs, or the time is over: the counts say which."""
    status = pause_queue(engine, redis_url, queue, principal)
    deadline = time.monotonic() + wait_seconds
    while status.counts.get("active", 0) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        status = load_status(redis_url, queue)
    return status


def load_status(redis_url: str, queue: QueueName) -> QueueStatus:
    async def nothing(_: JobQueues) -> None: ...

    return _run(redis_url, queue, nothing)


def run_schedule(engine: Engine, redis_url: str, name: str, principal: Principal) -> str:
    """Runs a scheduled job now, beside its schedule. Returns the id of the job."""
    job = SCHEDULES.get(name)
    if job is None:
        raise UsageError(f"there is no schedule {name[:40]!r}: expected one of {', '.join(SCHEDULES)}")
    (queue,), job_id = job.queues, f"{name}-now-{secrets.token_hex(8)}"

    async def add() -> None:
        async with JobQueues(redis_url) as queues:
            await queues.add(queue, job, job_id)

    asyncio.run(add())
    _record(engine, principal, "schedule.run", queue, schedule=name)
    return job_id


def requeue(engine: Engine, queue: QueueName, principal: Principal) -> int:
    """Has the relay send the announced jobs again that Redis may have lost. A job that it still has is not doubled."""
    with engine.begin() as connection:
        rows = query(connection, _REQUEUE, UUID, queue=str(queue))
        audit.record(connection, principal, "queue.requeued", "queue", queue, jobs=len(rows))
    return len(rows)


def _run(redis_url: str, queue: QueueName, act: Any) -> QueueStatus:
    async def run() -> QueueStatus:
        async with JobQueues(redis_url) as queues:
            await act(queues)
            paused, counts = await queues.is_paused(queue), await queues.counts(queue)
            return QueueStatus(str(queue), paused, counts, await queues.listening(queue))

    return asyncio.run(run())


def _record(engine: Engine, principal: Principal, action: str, queue: QueueName, **detail: object) -> None:
    with engine.begin() as connection:
        audit.record(connection, principal, action, "queue", queue, **detail)
