"""A worker process: one BullMQ worker, its threads, and a stop that finishes the work in hand.

BullMQ renews the locks of running jobs from the event loop, so nothing may block it: processors are plain functions, and run in
threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullmq import Worker
from bullmq.custom_errors import UnrecoverableError

from archiver.logs import get_logger
from archiver.queue.connection import worker_client
from archiver.queue.jobs import JOBS, BadJob, QueueName

_LOCK_MS = 30_000
_STALLED_CHECK_MS = 5_000
_MAX_STALLED = 3
_SPARE_THREADS = 4
_FORCED_STOP_SECONDS = 3.0
_PULSE_SECONDS = 10.0

log = get_logger("workers")


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """`run()` gives the process's exit code: 0 after a stop that was asked for, 1 when the worker died or had to be forced."""

    queue: QueueName
    redis_url: str
    concurrency: int
    processors: Mapping[str, Callable[[Any], Any]]
    drain_seconds: float = 25.0
    on_ready: Callable[[], None] = lambda: None
    alive_file: Path | None = None
    """Touched every few seconds while the loop works, for a container's health check."""

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        client = worker_client(self.redis_url)
        threads = ThreadPoolExecutor(self.concurrency + _SPARE_THREADS, thread_name_prefix=self.queue)
        worker = Worker(self.queue, self._processor(threads), self._options(client))
        worker.on("error", lambda error, *_: log.error("worker_error", queue=self.queue, error=str(error)))
        worker.on("failed", lambda job, error, *_: log.warning("job_failed", **_ids(job), error=str(error)))
        await worker.blockingRedisConnection.getRedisVersion()  # without it, delays are rounded up to whole seconds
        work = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(stop.wait())
        log.info("worker_ready", queue=self.queue, concurrency=self.concurrency)
        self.on_ready()
        pulse = asyncio.create_task(self._pulse(worker))
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        try:
            return await (self._drain(worker, work) if stop.is_set() else self._loop_died(work))
        finally:
            stopping.cancel()
            pulse.cancel()
            threads.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(Exception):
                await client.aclose()

    async def _pulse(self, worker: Worker) -> None:
        while self.alive_file is not None:
            if worker.running:
                self.alive_file.touch()
            await asyncio.sleep(_PULSE_SECONDS)

    def _options(self, client: Any) -> dict[str, Any]:
        return {
            "connection": client,
            "autorun": False,
            "concurrency": self.concurrency,
            "lockDuration": _LOCK_MS,
            "stalledInterval": _STALLED_CHECK_MS,
            "maxStalledCount": _MAX_STALLED,
        }

    def _processor(self, threads: ThreadPoolExecutor) -> Callable[..., Any]:
        async def process(job: Any, _token: str) -> Any:
            kind = JOBS.get(job.name)
            processor = self.processors.get(job.name)
            if kind is None or processor is None:
                raise UnrecoverableError(f"there is no processor for a job named {job.name!r}")
            try:
                payload = kind.from_data(job.data)
                work = asyncio.get_running_loop().run_in_executor(threads, processor, payload)
                return await asyncio.wait_for(asyncio.shield(work), kind.timeout_seconds)
            except BadJob as error:
                raise UnrecoverableError(str(error)) from error
            except TimeoutError:
                raise RuntimeError(f"{job.name} took longer than {kind.timeout_seconds:.0f} s") from None
            except asyncio.CancelledError:  # would end the worker's own loop without a word
                raise RuntimeError(f"{job.name} was cancelled") from None

        return process

    async def _drain(self, worker: Worker, work: asyncio.Task[Any]) -> int:
        log.info("worker_stopping", queue=self.queue, running=len(worker.processing))
        closing = asyncio.create_task(worker.close())
        done, _ = await asyncio.wait({closing}, timeout=self.drain_seconds)
        if not done:
            log.warning("worker_forced", queue=self.queue, running=len(worker.processing))
            with contextlib.suppress(Exception):
                await asyncio.wait_for(worker.close(force=True), _FORCED_STOP_SECONDS)
        work.cancel()
        await asyncio.wait({work}, timeout=_FORCED_STOP_SECONDS)
        log.info("worker_stopped", queue=self.queue)
        return 0 if done else 1

    async def _loop_died(self, work: asyncio.Task[Any]) -> int:
        error = work.exception() if not work.cancelled() else None
        log.error("worker_loop_died", queue=self.queue, error=str(error or "ended without an error"))
        return 1


def _ids(job: Any) -> dict[str, Any]:
    return {"job": job.name, "id": job.id, "attempt": job.attemptsMade} if job is not None else {}
