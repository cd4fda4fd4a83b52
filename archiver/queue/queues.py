"""Adds jobs to queues, and inspects them."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bullmq import Job as BullJob
from bullmq import Queue

from archiver.config import interval_seconds
from archiver.errors import NotReady
from archiver.queue.completion import wait_for_job
from archiver.queue.connection import request_client
from archiver.queue.jobs import Job, JobEnvelope, Ping, QueueName, options

_MARK = "archiver:mark"
_NEVER = "never"
_SETTLED = "archiver-settled"
"""In the hash of a failed job that Postgres knows of. It stays in Redis for people to see, until its time is over."""
_SETTLE = "if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('HSET', KEYS[1], ARGV[1], '1') end return 0"
_IDS_AT_ONCE = 1_000
_ALIVE = ("waiting", "prioritized", "delayed", "active")


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that BullMQ has given up."""

    queue: QueueName
    id: str
    name: str
    data: Any
    reason: str
    attempts: int


class JobQueues:
    """The queues of one Redis, for use inside one event loop. Must be closed."""

    def __init__(self, url: str) -> None:
        self._client = request_client(url)
        self._queues = {name: Queue(name, {"connection": self._client}) for name in QueueName}

    async def __aenter__(self) -> JobQueues:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def add(self, queue: QueueName, job: Job, job_id: str) -> None:
        await self.add_bulk(queue, [JobEnvelope.of(job, job_id)])

    async def add_bulk(self, queue: QueueName, envelopes: Sequence[JobEnvelope]) -> None:
        """Adds all in one write. Adding an existing id does nothing."""
        jobs: list[dict[str, Any]] = []
        for envelope in envelopes:
            assert queue in envelope.job.queues
            kind = type(envelope.job)
            jobs.append({"name": kind.name, "data": envelope.encode(), "opts": options(kind, envelope.id, envelope.priority)})
        if jobs:
            await self._queues[queue].addBulk(jobs)

    async def counts(self, queue: QueueName) -> dict[str, int]:
        """Number of jobs by state; the jobs of a paused queue count as waiting."""
        return dict(
            await self._queues[queue].getJobCounts("active", "waiting", "prioritized", "delayed", "failed", "completed")
        )

    async def alive(self, queue: QueueName, job_ids: Iterable[str]) -> set[str]:
        """The ids of jobs that are waiting or running."""
        states = {job_id: await self._queues[queue].getJobState(job_id) for job_id in job_ids}
        return {job_id for job_id, state in states.items() if state in _ALIVE}

    async def forget(self, queue: QueueName, job_ids: Iterable[str]) -> None:
        """Removes what is left of ended jobs, so that their ids can be reused."""
        for job_id in job_ids:
            await self._queues[queue].remove(job_id)

    async def failed(self, queue: QueueName, limit: int = 100, after: int = 0) -> list[FailedJob]:
        """The jobs that BullMQ gave up and that are not settled yet, without the first `after` ones."""
        bull, found = self._queues[queue], list[str]()
        ids = [str(one) for one in await self._client.zrange(bull.toKey("failed"), 0, -1)]
        for start in range(0, len(ids), _IDS_AT_ONCE):
            some = ids[start : start + _IDS_AT_ONCE]
            async with self._client.pipeline(transaction=False) as pipe:
                for job_id in some:
                    pipe.hexists(bull.toKey(job_id), _SETTLED)
                found += [job_id for job_id, is_settled in zip(some, await pipe.execute(), strict=True) if not is_settled]
        jobs = [await BullJob.fromId(bull, job_id) for job_id in found[after : after + limit]]
        return [FailedJob(queue, job.id, job.name, job.data, job.failedReason or "", job.attemptsMade) for job in jobs if job]

    async def mark_settled(self, queue: QueueName, job_ids: Iterable[str]) -> None:
        """They stay in Redis as failed, so that tools for BullMQ show them and can retry them."""
        for job_id in job_ids:
            await self._client.eval(_SETTLE, 1, self._queues[queue].toKey(job_id), _SETTLED)

    async def was_flushed(self) -> bool:
        """True once each time that Redis comes up empty, because it was flushed or replaced."""
        return bool(await self._client.set(_MARK, "1", nx=True))

    async def workers(self, queue: QueueName) -> int:
        """The number of connected worker processes."""
        return max(1, len(await self.listening(queue)))

    async def listening(self, queue: QueueName) -> list[str]:
        """The names of connected worker processes; each has several connections."""
        prefix = client_name(queue, "")
        names = {str(client.get("name", "")) for client in await self._client.client_list()}
        return sorted({name.removeprefix(prefix) for name in names if name.startswith(prefix)})

    async def pause(self, queue: QueueName) -> None:
        """Running jobs finish; new ones can still be added."""
        await self._queues[queue].pause()

    async def resume(self, queue: QueueName) -> None:
        await self._queues[queue].resume()

    async def is_paused(self, queue: QueueName) -> bool:
        return bool(await self._queues[queue].isPaused())

    async def ensure_schedule(self, queue: QueueName, job: Job, schedule: str) -> None:
        """Ensures that `job` runs on this schedule, which may be "never". A correct schedule is not replaced, because that
        would lose a tick that is due."""
        if schedule == _NEVER:
            await self._queues[queue].removeJobScheduler(job.name)
            return
        seconds = interval_seconds(schedule)
        wanted: dict[str, Any] = {"every": seconds * 1000} if seconds else {"pattern": schedule, "tz": "UTC"}
        bull = self._queues[queue]
        # (getJobScheduler raises if there is none)
        found = next((one for one in await bull.getJobSchedulers(0, -1) if one and one.get("key") == job.name), None)
        if found and all(str(found.get(name)) == str(value) for name, value in wanted.items()):
            return
        template = options(type(job), None)  # BullMQ trims the finished jobs of the whole queue by what this one says
        await bull.upsertJobScheduler(job.name, wanted, job.name, JobEnvelope.of(job, job.name).encode(), template)


def client_name(queue: QueueName, worker: str) -> str:
    """The name of a worker's connections, as BullMQ for Node looks for it. (That for Python does not encode the queue.)"""
    return f"bull:{base64.b64encode(queue.encode()).decode()}:w:{worker}"


async def is_settled(client: Any, key: str) -> bool:
    """Whether a job that runs now was given up before. `key`: of the job."""
    return bool(await client.hexists(key, _SETTLED))


async def remove_settled_mark(client: Any, key: str) -> None:
    await client.hdel(key, _SETTLED)


async def ping(url: str, queue: QueueName, timeout_seconds: float = 5.0) -> float:
    """The seconds until a worker of this queue responded."""
    started = time.monotonic()
    token = secrets.token_hex(8)
    async with JobQueues(url) as queues:
        await queues.add(queue, Ping(token), f"ping-{token}")
    answer = await wait_for_job(url, queue, f"ping-{token}", timeout_seconds)
    if answer != {"token": token}:
        raise NotReady(f"a worker of the queue {queue.value!r} returned an unexpected result")
    return time.monotonic() - started
