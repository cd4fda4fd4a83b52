"""Carries announced jobs from the outbox to the queues: fairly, a few at a time, and again if Redis loses them.

It may run in every worker at once. Postgres is the truth about what is to be done; jobs that Redis loses are sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import redis
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from archiver.db.counters import Counters
from archiver.db.engine import is_away
from archiver.db.sql import query, query_one
from archiver.logs import get_logger
from archiver.queue.jobs import JOBS, BadJob, Job, JobEnvelope, QueueName
from archiver.queue.queues import FailedJob, JobQueues
from archiver.sync.failures import Settler, settle_failed
from archiver.sync.outbox import CHANNEL
from archiver.sync.shares import SHARES_OF_SMALL, PickedJobs, Room, SentMailboxes, choose
from connectors.errors import first_line

_PER_SOURCE = 50
_CONTROL_JOBS = 5
"""Rows of a source that are picked even when it may send no more mailboxes: control jobs pass every limit."""
_JOBS_PER_SLOT = 4
"""Jobs in Redis per slot: enough that no slot waits for the relay, few enough that priorities can still change."""
_POLL_SECONDS = 5.0
_TROUBLE_SECONDS = 1.0
_ROUND_SECONDS = 0.1
"""Pause after a round that sent something: mailboxes that end during it free their slots together."""

log = get_logger("relay")

# One step per source over the index (queue, source_id, …), so that 100,000 rows of one source cost no more than ten. Locking a
# picked row is a write, so hardly more rows are picked than can be sent.
_PICK = """
    WITH RECURSIVE named(source_id) AS (
        (SELECT source_id FROM outbox WHERE queue = :queue AND sent_at IS NULL AND source_id IS NOT NULL
         ORDER BY source_id LIMIT 1)
        UNION ALL
        SELECT (SELECT o.source_id FROM outbox o WHERE o.queue = :queue AND o.sent_at IS NULL AND o.source_id > named.source_id
                ORDER BY o.source_id LIMIT 1)
        FROM named WHERE named.source_id IS NOT NULL),
    sent AS MATERIALIZED (
        SELECT source_id, count(*) AS under_way FROM outbox
        WHERE sent_at > '-infinity' AND job = 'process-mailbox' AND available_at <= now() GROUP BY source_id),
    share AS (SELECT :limit * ceil(:slots / CAST(greatest(1, count(source_id)) AS numeric)) AS n FROM named)
    SELECT picked.*, s.owner_id, coalesce(s.kind = 'import', false) AS is_import,
        (SELECT total_mailboxes FROM sync_sessions WHERE id = picked.session_id) AS session_mailboxes
    FROM named LEFT JOIN sent ON sent.source_id = named.source_id
    LEFT JOIN ingestion_sources s ON s.id = named.source_id CROSS JOIN share, LATERAL (
        SELECT CAST(greatest(:room, share.n - coalesce(sent.under_way, 0)) AS bigint) AS n) AS mailboxes, LATERAL (
        SELECT o.id, o.job, o.payload, o.source_id, o.session_id, o.priority FROM outbox o
        WHERE o.queue = :queue AND o.sent_at IS NULL AND o.source_id = named.source_id
          AND o.available_at <= now() AND o.job = ANY(:jobs) AND (o.job <> 'process-mailbox' OR mailboxes.n > 0)
        ORDER BY o.priority, o.id LIMIT greatest(:control, mailboxes.n) FOR UPDATE SKIP LOCKED) AS picked
    UNION ALL
    SELECT nameless.*, NULL, false, NULL FROM (
        SELECT o.id, o.job, o.payload, o.source_id, o.session_id, o.priority FROM outbox o
        WHERE o.queue = :queue AND o.sent_at IS NULL AND o.source_id IS NULL AND o.available_at <= now() AND o.job = ANY(:jobs)
        ORDER BY o.priority, o.id LIMIT :nameless FOR UPDATE SKIP LOCKED) AS nameless"""

_SENT_BY_SOURCE = """
    SELECT o.source_id, s.owner_id, coalesce(s.kind = 'import', false) AS is_import, count(*) AS mailboxes
    FROM outbox o LEFT JOIN ingestion_sources s ON s.id = o.source_id
    WHERE o.queue = :queue AND o.sent_at > '-infinity' AND o.job = 'process-mailbox' AND o.available_at <= now()
    GROUP BY 1, 2, 3"""

# A delayed mailbox takes no slot from those that could run now.
_UNDER_WAY = """
    SELECT count(*) FILTER (WHERE job = 'process-mailbox' AND available_at <= now()) AS mailboxes, count(*) AS all_jobs,
        count(*) FILTER (WHERE job = 'advance-workflow') AS workflows
    FROM outbox WHERE queue = :queue AND sent_at > '-infinity'"""
_SENT = """
    SELECT id FROM outbox WHERE queue = :queue AND sent_at < now() - :seconds * interval '1 second' ORDER BY id LIMIT 5000"""


_MARK_SENT = text("""
    UPDATE outbox o SET sent_at = now(), priority = x.priority
    FROM unnest(CAST(:ids AS uuid[]), CAST(:priorities AS int[])) AS x(id, priority) WHERE o.id = x.id""")


@dataclass(frozen=True, slots=True)
class JobsUnderWay:
    mailboxes: int
    all_jobs: int
    workflows: int


@dataclass(slots=True)
class Relay:
    """`run()` returns only when it is cancelled."""

    engine: Engine
    database_url: str
    redis_url: str
    slots: int
    queue_max_depth: int
    import_slots: int
    schedules: Mapping[Job, str] = field(default_factory=dict)
    """Jobs that run on a schedule."""
    settlers: Mapping[str, Settler] = field(default_factory=dict)
    """How jobs of rooms above this one are recorded when they are given up, by job name."""
    counters: Counters = field(default_factory=Counters)
    resend_seconds: float = 60.0
    _failed: asyncio.Event = field(default_factory=asyncio.Event)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _requested: set[QueueName] = field(default_factory=lambda: set(QueueName))
    """Queues that may have something to send."""
    _polled_at: float = 0.0
    _workers: int = 1

    async def run(self) -> None:
        listener = _Listener(self.database_url, asyncio.get_running_loop(), self._request_check)
        listener.start()
        maintenance = asyncio.create_task(self._maintain())
        try:
            async with JobQueues(self.redis_url) as queues:
                while True:
                    self._wake.clear()
                    requested, self._requested = self._queues_to_check(), set()
                    sent = await self._guard(self._send_round(queues, requested))
                    # An outage: nothing is known to be sent, so the same queues are checked again.
                    if sent is None:
                        self._requested |= requested
                    elif sent:
                        self._requested |= sent
                        await asyncio.sleep(_ROUND_SECONDS)
                    else:
                        await self._rest()
        finally:
            maintenance.cancel()
            listener.stop()

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _POLL_SECONDS)

    def _queues_to_check(self) -> set[QueueName]:
        """All queues every few seconds, because rows also become due with time and notifications may be lost."""
        if time.monotonic() - self._polled_at < _POLL_SECONDS:
            return self._requested
        self._polled_at = time.monotonic()
        return set(QueueName)

    def _request_check(self, queue: str) -> None:
        self._requested |= {QueueName(queue)} if queue in set(QueueName) else set(QueueName)
        self._wake.set()

    def job_failed(self) -> None:
        """BullMQ gave up a job: settle it now instead of at the next poll."""
        self._failed.set()

    async def _guard(self, work: Any) -> Any:
        """Postgres and Redis may be down for a while; the relay waits for them, and survives every other error."""
        try:
            return await work
        except (DBAPIError, psycopg.Error, redis.RedisError, OSError) as error:
            log.warning("relay_waits", error=first_line(error))
        except Exception:
            log.exception("relay_failed")
        await asyncio.sleep(_TROUBLE_SECONDS)
        return None

    async def _send_round(self, queues: JobQueues, requested: set[QueueName]) -> set[QueueName]:
        """Returns the queues to which something was sent."""
        # Redis without persistence, or a FLUSHALL: the outbox still has every row whose effect is not committed.
        if await queues.was_flushed():
            await asyncio.to_thread(self._resend_all)
            await self._restore_schedules(queues)
            requested = set(QueueName)
        return {queue for queue in sorted(requested) if await self._send(queues, queue)}

    async def _send(self, queues: JobQueues, queue: QueueName) -> int:
        # The rows stay locked while Redis is written: what is marked as sent has been sent. If we die in between, they are sent
        # twice, which the job's id makes harmless.
        with self.engine.connect() as connection:
            rows = await asyncio.to_thread(self.pick, connection, queue)
            if not rows:
                return 0
            await queues.add_bulk(queue, [envelope for row in rows if (envelope := _envelope(row)) is not None])
            await asyncio.to_thread(mark_sent, connection, rows)
        for row in rows:
            self.counters.add("archiver_jobs", job=row.job, event="added")
        return len(rows)

    def pick(self, connection: Connection, queue: QueueName) -> list[PickedJobs]:
        under_way = query_one(connection, _UNDER_WAY, JobsUnderWay, queue=str(queue))
        slots = self.slots * self._workers
        mailbox_room = _JOBS_PER_SLOT * slots - under_way.mailboxes
        values = {
            "queue": str(queue),
            "jobs": [kind.name for kind in JOBS.values() if queue in kind.queues],
            "slots": slots,
            "limit": SHARES_OF_SMALL,
            "room": min(_PER_SOURCE, mailbox_room),
            "control": _CONTROL_JOBS,
            "nameless": _PER_SOURCE,
        }
        rows = query(connection, _PICK, PickedJobs, **values)
        if not rows:
            return []
        room = Room(
            slots,
            self.import_slots * self._workers,
            mailbox_room,
            self.queue_max_depth - under_way.all_jobs,
            max(1, slots // 2) - under_way.workflows,
        )
        return choose(rows, query(connection, _SENT_BY_SOURCE, SentMailboxes, queue=str(queue)), room)

    async def _maintain(self) -> None:
        """Every minute, sends the jobs and schedules that Redis no longer knows again."""
        async with JobQueues(self.redis_url) as queues:
            while True:
                self._failed.clear()
                await self._guard(self._maintain_once(queues))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._failed.wait(), self.resend_seconds)

    async def _maintain_once(self, queues: JobQueues) -> None:
        await self._restore_schedules(queues)
        await self._settle_failed(queues)
        self._workers = await queues.workers(QueueName.INGESTION)
        for queue in QueueName:
            old = await asyncio.to_thread(self._load_sent, queue)
            alive = await queues.alive(queue, map(str, old))
            lost = [row_id for row_id in old if str(row_id) not in alive]
            if lost:
                await queues.forget(queue, map(str, lost))
                await asyncio.to_thread(self._resend, lost)
                log.warning("jobs_sent_again", queue=queue, jobs=len(lost))
                self._request_check(queue)

    async def _restore_schedules(self, queues: JobQueues) -> None:
        for job, schedule in self.schedules.items():
            (queue,) = job.queues
            await queues.ensure_schedule(queue, job, schedule)

    async def _settle_failed(self, queues: JobQueues) -> None:
        """Jobs that BullMQ gave up are settled in Postgres, and marked in Redis, where they stay for people to see. A job that
        can't be settled is tried again."""
        for queue in QueueName:
            stuck = 0
            while found := await queues.failed(queue, after=stuck):
                settled = [failed.id for failed in found if await asyncio.to_thread(self._settle, failed)]
                await queues.mark_settled(queue, settled)
                stuck += len(found) - len(settled)

    def _settle(self, failed: FailedJob) -> bool:
        try:
            with self.engine.begin() as connection:
                settle_failed(connection, failed, self.settlers)
        except Exception as error:
            if is_away(error):
                raise
            log.exception("job_not_settled", queue=failed.queue, job=failed.name, id=failed.id)
            return False
        log.error("job_given_up", queue=failed.queue, job=failed.name, id=failed.id, reason=failed.reason)
        return True

    def _resend_all(self) -> None:
        with self.engine.begin() as connection:
            rows = connection.execute(text("UPDATE outbox SET sent_at = NULL WHERE sent_at IS NOT NULL")).rowcount
        if rows:
            log.warning("redis_was_emptied", jobs_sent_again=rows)

    def _load_sent(self, queue: QueueName) -> list[UUID]:
        with self.engine.connect() as connection:
            return query(connection, _SENT, UUID, queue=str(queue), seconds=self.resend_seconds / 2)

    def _resend(self, row_ids: list[UUID]) -> None:
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE outbox SET sent_at = NULL WHERE id = ANY(:ids)"), {"ids": row_ids})


def mark_sent(connection: Connection, rows: list[PickedJobs]) -> None:
    connection.execute(_MARK_SENT, {"ids": [row.id for row in rows], "priorities": [row.priority for row in rows]})
    connection.commit()


def _envelope(row: PickedJobs) -> JobEnvelope | None:
    try:
        payload = row.payload if isinstance(row.payload, dict) else {}
        job = JOBS[row.job].from_data(payload.get("data", {}))
    except BadJob as error:
        log.error("outbox_row_unreadable", row=str(row.id), error=str(error))
        return None
    correlation = row.session_id or row.source_id or row.id
    now, cause, trace = datetime.now(UTC), payload.get("cause"), payload.get("trace")
    return JobEnvelope(str(row.id), job, str(correlation), cause, now, row.priority, trace)


class _Listener(threading.Thread):
    """Wakes the relay when a transaction announces a job. Losing it costs seconds: the relay also polls."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, request_check: Callable[[str], None]) -> None:
        super().__init__(daemon=True, name="outbox-listener")
        self._url, self._loop, self._request_check = url, loop, request_check
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, application_name="archiver-relay") as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._listen(connection)
            except (psycopg.Error, OSError):
                self._stopped.wait(_TROUBLE_SECONDS)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        while not self._stopped.is_set():
            for news in connection.notifies(timeout=_POLL_SECONDS, stop_after=1):
                with contextlib.suppress(RuntimeError):  # the loop is closed: the process is stopping
                    self._loop.call_soon_threadsafe(self._request_check, news.payload)
