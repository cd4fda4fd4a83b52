"""Waiting for the end of a job: by events, with a last look at the real state, so that nothing is missed.

(The end of a sync cycle is a row in Postgres: archiver.services.runs.wait_for_run looks there.)
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bullmq import Job as BullJob
from bullmq import Queue, QueueEvents

from archiver.errors import NotReady
from archiver.queue.connection import request_client
from archiver.queue.jobs import QueueName

_ENDED = ("completed", "failed")
_LOOK_SECONDS = 2.0
_BLOCK_MS = 250


async def wait_for_job(url: str, queue: QueueName, job_id: str, timeout_seconds: float) -> Any:
    """What the job returned. Raises NotReady when it has not ended in time, or failed.

    First the listener, then the look: a job that ends between the two is seen by one of them.
    """
    listening, asking = request_client(url), request_client(url)
    bull = Queue(queue, {"connection": asking})
    options = {"lastEventId": await _last_event(bull), "blockingTimeout": _BLOCK_MS, "autorun": False}
    events = QueueEvents(queue, {"connection": listening, **options})
    ended = asyncio.Event()

    def notice(arguments: Any, _entry: Any) -> None:
        if arguments.get("jobId") == job_id:
            ended.set()

    for name in _ENDED:
        events.on(name, notice)
    reading = asyncio.create_task(events.run())
    try:
        async with asyncio.timeout(timeout_seconds):
            while await bull.getJobState(job_id) not in _ENDED:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _LOOK_SECONDS)
        return await _result(bull, job_id)
    except TimeoutError:
        raise NotReady(f"no worker took a job of the queue {queue.value!r} within {timeout_seconds:.0f} s") from None
    finally:
        events.closing = True  # seen after the read in hand; cancelling that read would make redis-py try it again
        await asyncio.gather(reading, return_exceptions=True)
        for client in (listening, asking):
            await client.aclose()


async def _last_event(bull: Queue) -> str:
    """Where the stream ends now; with `$` an event before the first read would be lost."""
    newest = await bull.client.xrevrange(bull.toKey("events"), count=1)
    return str(newest[0][0]) if newest else "0-0"


async def _result(bull: Queue, job_id: str) -> Any:
    job = await BullJob.fromId(bull, job_id)
    if job.failedReason:
        raise NotReady(f"the job {job_id} failed: {job.failedReason}")
    return job.returnvalue
