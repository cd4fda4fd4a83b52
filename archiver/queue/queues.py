"""Putting jobs into queues, and looking at them."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

from bullmq import Job as BullJob
from bullmq import Queue

from archiver.errors import NotReady
from archiver.queue.connection import request_client
from archiver.queue.jobs import Job, Ping, QueueName, options

_LOOK_SECONDS = 0.02


class JobQueues:
    """The queues of one Redis. To be used inside one event loop, and closed."""

    def __init__(self, url: str) -> None:
        self._client = request_client(url)
        self._queues = {name: Queue(name, {"connection": self._client}) for name in QueueName}

    async def __aenter__(self) -> JobQueues:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def add(self, queue: QueueName, job: Job, job_id: str) -> None:
        """Adding an id that is there already does nothing."""
        assert queue in job.queues
        await self._queues[queue].add(job.name, job.data(), options(type(job), job_id))

    async def counts(self, queue: QueueName) -> dict[str, int]:
        """Jobs by state; paused queues count theirs as waiting."""
        return dict(
            await self._queues[queue].getJobCounts("active", "waiting", "prioritized", "delayed", "failed", "completed")
        )

    async def result(self, queue: QueueName, job_id: str, timeout_seconds: float) -> Any:
        """What the job returned. Raises NotReady when it has not ended in time, or failed."""
        bull = self._queues[queue]
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            state = await bull.getJobState(job_id)
            if state in ("completed", "failed"):
                job = await BullJob.fromId(bull, job_id)
                if state == "failed":
                    raise NotReady(f"the job {job_id} failed: {job.failedReason}")
                return job.returnvalue
            await asyncio.sleep(_LOOK_SECONDS)
        raise NotReady(f"no worker took a job of the queue {queue.value!r} within {timeout_seconds:.0f} s")


async def ping(url: str, queue: QueueName, timeout_seconds: float = 5.0) -> float:
    """Seconds until a worker of this queue answered."""
    started = time.monotonic()
    token = secrets.token_hex(8)
    async with JobQueues(url) as queues:
        await queues.add(queue, Ping(token), f"ping-{token}")
        answer = await queues.result(queue, f"ping-{token}", timeout_seconds)
    if answer != {"token": token}:
        raise NotReady(f"a worker of the queue {queue.value!r} gave a wrong answer")
    return time.monotonic() - started
