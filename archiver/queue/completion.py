"""Waits for the end of a job or a sync cycle, by events combined with a check of the real state, so that none is missed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from bullmq import Job as BullJob
from bullmq import Queue, QueueEvents
from redis.exceptions import RedisError

from archiver.errors import NotReady
from archiver.queue.connection import request_client
from archiver.queue.jobs import QueueName

_ENDED = ("completed", "failed")
_LOOK_SECONDS = 2.0
"""How often the real state is checked, in case an event was lost."""
_BLOCK_MS = 250
"""Short, because a blocking read can't be cancelled and delays `close`."""


async def wait_for_job(url: str, queue: QueueName, job_id: str, timeout_seconds: float) -> Any:
    """Returns the job's result. Raises NotReady if it failed or did not end in time.

    The listener starts before the state is checked: a job that ends in between is seen by one of them.
    """
    ended = asyncio.Event()

    def notice(event: dict[str, Any]) -> None:
        if event.get("jobId") == job_id:
            ended.set()

    try:
        async with _listening(url, queue, notice) as bull, asyncio.timeout(timeout_seconds):
            while await bull.getJobState(job_id) not in _ENDED:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _LOOK_SECONDS)
            return await _result(bull, job_id)
    except TimeoutError:
        raise NotReady(f"no worker took a job from the queue {queue.value!r} within {timeout_seconds:.0f} s") from None


class CycleEnds:
    """Wakes a caller that waits for the end of a source's sync cycle; the caller then checks the cycle's row in Postgres.

    Without Redis there are no events, and `wait` is only a pause.
    """

    def __init__(self, url: str, source_id: UUID) -> None:
        self._url, self._source = url, str(source_id)
        self._ended, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()), name="cycle-ends", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Whether a cycle ended during the wait."""
        ended = self._ended.wait(seconds)
        self._ended.clear()
        return ended

    async def _listen(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            async with _listening(self._url, QueueName.INGESTION, self._notice):
                await asyncio.to_thread(self._stop.wait)

    def _notice(self, event: dict[str, Any]) -> None:
        if self._source in str(event.get("returnvalue", "")):
            self._ended.set()


@contextlib.asynccontextmanager
async def _listening(url: str, queue: QueueName, notice: Callable[[dict[str, Any]], None]) -> AsyncIterator[Queue]:
    """Calls `notice` for each job that ends from now on. Yields the queue, to check the real state."""
    listening, asking = request_client(url), request_client(url)
    try:
        bull = Queue(queue, {"connection": asking})
        options = {"lastEventId": await _last_event(bull), "blockingTimeout": _BLOCK_MS, "autorun": False}
        events = QueueEvents(queue, {"connection": listening, **options})
        for name in _ENDED:
            events.on(name, lambda arguments, _entry: notice(arguments))
        reading = asyncio.create_task(events.run())
        try:
            yield bull
        finally:
            events.closing = True  # takes effect after the current read; redis-py would retry a cancelled read
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        for client in (listening, asking):
            await client.aclose()


async def _last_event(bull: Queue) -> str:
    """The current end of the stream; with `$`, an event before the first read would be lost."""
    newest = await bull.client.xrevrange(bull.toKey("events"), count=1)
    return str(newest[0][0]) if newest else "0-0"


async def _result(bull: Queue, job_id: str) -> Any:
    job = await BullJob.fromId(bull, job_id)
    if job.failedReason:
        raise NotReady(f"the job {job_id} failed: {job.failedReason}")
    return job.returnvalue
