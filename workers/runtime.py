"""A worker process: one BullMQ worker, its threads, and a shutdown that finishes running jobs.

BullMQ renews the locks of running jobs from the event loop, so nothing may block it: processors are plain functions that run
in threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from bullmq import Worker
from bullmq.custom_errors import DelayedError, UnrecoverableError

from archiver import tracing
from archiver.db.counters import Counters
from archiver.db.worker_reports import process_name
from archiver.logs import copy_lines, get_logger, log_context
from archiver.queue.connection import worker_client
from archiver.queue.job_report import JobReport
from archiver.queue.jobs import BadJob, JobEnvelope, Later, QueueName, UnknownJob
from archiver.queue.queues import client_name, is_settled, remove_settled_mark
from connectors.errors import first_line
from workers.dead_locks import process_id, release_dead_locks

_LOCK_MS = 15_000
"""A dead worker's jobs are run elsewhere after this time: long enough for a pause of the machine, short enough for users.
On its own machine, they are run as soon as a worker starts (workers.dead_locks)."""
_STALLED_CHECK_MS = 5_000
_MAX_STALLED = 3
"""A job that has stalled more often than this is given up, because it may be what kills its workers."""
_SPARE_THREADS = 4
_FORCED_STOP_SECONDS = 3.0
_PULSE_SECONDS = 10.0
_REPORT_SECONDS = 2.0
_UNKNOWN_PAUSE_SECONDS = 15.0
_UPGRADE_SECONDS = 3600.0
"""How long a rolling upgrade may take: afterwards, a job that no worker knows is a dead letter."""
PAUSED = 75
"""EX_TEMPFAIL: the worker has finished its jobs, and is to work again once the pause is over."""

log = get_logger("workers")


class Lost(Exception):
    """A server that all jobs need is down; the job runs again when it is back, and loses no attempt."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """`run()` returns the process's exit code: 0 after a requested stop, PAUSED after a requested pause, 1 if the worker died
    or had to be forced."""

    queue: QueueName
    redis_url: str
    concurrency: int
    processors: Mapping[str, Callable[[Any, Any, Any], Any]]
    work: Any = None
    """Passed to every processor."""
    counters: Counters = field(default_factory=Counters)
    on_running: Callable[[int], None] = lambda _: None
    """Called with the number of running jobs, every few seconds."""
    is_outage: Callable[[BaseException], bool] = lambda _: False
    wait_until_back: Callable[[], None] = lambda: None
    on_stop: Callable[[], None] = lambda: None
    """Called when a stop or a pause is requested, so that processors can finish."""
    pause_requested: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Returns when the worker has to pause."""
    on_given_up: Callable[[], None] = lambda: None
    """Called when a job has failed permanently."""
    on_retried: Callable[[str, str, Any], None] = lambda _, __, ___: None
    """Called with its id, name and data before a job that was given up runs again, because a person retried it in the queue."""
    background: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Runs in the same event loop, such as the outbox relay."""
    drain_seconds: float = 20.0
    on_ready: Callable[[], None] = lambda: None
    alive_file: Path | None = None
    """Touched every few seconds while the loop runs, for a container's health check."""
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        client = worker_client(self.redis_url)
        threads = ThreadPoolExecutor(self.concurrency + _SPARE_THREADS, thread_name_prefix=self.queue)
        worker = Worker(self.queue, self._processor(threads), self._options(client))
        worker.id = process_id()  # the start of the token in the lock of each job
        worker.clientName = client_name(self.queue, process_name())
        worker.on("error", lambda error, *_: log.error("worker_error", queue=self.queue, error=str(error)))
        worker.on("failed", self._failed)
        worker.on("stalled", lambda *_: self.counters.add("archiver_jobs_stalled", queue=self.queue))
        await worker.blockingRedisConnection.getRedisVersion()  # without it, delays are rounded up to whole seconds
        await self._take_over(worker)
        work = asyncio.create_task(worker.run())
        stopping = asyncio.create_task(stop.wait())
        # Whichever ends first ends the process: a dead BullMQ loop or relay must not go unnoticed, and the supervisor restarts
        # us.
        awaited = {work, stopping}
        pausing = asyncio.create_task(self.pause_requested()) if self.pause_requested is not None else None
        if pausing is not None:
            awaited.add(pausing)
        if self.background is not None:
            awaited.add(asyncio.create_task(self.background()))
        self._tasks.extend([stopping, asyncio.create_task(self._pulse(worker)), *(awaited - {work, stopping})])
        log.info("worker_ready", queue=self.queue, concurrency=self.concurrency)
        self.on_ready()
        ended, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not stop.is_set() and pausing not in ended:
                _log_cause(self.queue, ended)
            self.on_stop()
            drained = await self._drain(worker, work)
            if stop.is_set():
                return 0 if drained else 1
            return PAUSED if pausing in ended else 1
        finally:
            for task in self._tasks:
                task.cancel()
            # with a deadline, because redis-py may swallow the cancellation while its server is down
            await asyncio.wait(self._tasks, timeout=_FORCED_STOP_SECONDS)
            threads.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(Exception):
                await client.aclose()

    async def _take_over(self, worker: Worker) -> None:
        if jobs := await release_dead_locks(worker.client, worker.backend.toKey):
            log.warning("jobs_of_a_dead_worker", queue=self.queue, jobs=jobs)
            await worker.runStalledJobsCheck()

    def _failed(self, job: Any, error: Any, *_: Any) -> None:
        log.warning("job_failed", **_ids(job), error=str(error))
        if job is not None and job.finishedOn:  # 0 while attempts are left
            self.on_given_up()

    async def _pulse(self, worker: Worker) -> None:
        while True:
            self.on_running(len(worker.processing))
            if worker.running and self.alive_file is not None:
                self.alive_file.touch()
            await asyncio.sleep(_PULSE_SECONDS)

    def _options(self, client: Any) -> dict[str, Any]:
        return {
            "connection": client,
            "name": process_name(),
            "autorun": False,
            "concurrency": self.concurrency,
            "lockDuration": _LOCK_MS,
            "stalledInterval": _STALLED_CHECK_MS,
            "maxStalledCount": _MAX_STALLED,
        }

    def _processor(self, threads: ThreadPoolExecutor) -> Callable[..., Any]:
        async def process(job: Any, token: str) -> Any:
            started, report = time.monotonic(), JobReport()
            report.line(f"begun by {process_name()}")
            publishing = asyncio.create_task(_publish_often(job, report))
            try:
                await self._note_retry(job, threads)
                result = await self._run_through_outages(job, threads, report)
            except asyncio.CancelledError:  # would end the worker's own loop silently
                raise RuntimeError(f"{job.name} was cancelled") from None
            except Later as pause:
                self._count(job.name, "delayed", started)
                await _end_report(job, report, publishing, f"goes on in {pause.after_seconds:.0f} s")
                await _delay(job, token, pause.after_seconds)
                raise DelayedError from None
            except Exception as error:
                self._count(job.name, "failed", started)
                await _end_report(job, report, publishing, f"failed: {first_line(error)}")
                raise
            finally:
                publishing.cancel()
            self._count(job.name, "done", started)
            report.progress(100)
            await _end_report(job, report, publishing, f"done after {time.monotonic() - started:.1f} s")
            return result

        return process

    async def _note_retry(self, job: Any, threads: ThreadPoolExecutor) -> None:
        """For a job that was given up and runs again: a person retried it in the queue."""
        key = job.queue.backend.toKey(job.id)
        if await is_settled(job.queue.client, key):
            await asyncio.get_running_loop().run_in_executor(threads, self.on_retried, job.id, job.name, job.data)
            await remove_settled_mark(job.queue.client, key)

    def _count(self, name: str, event: str, started: float) -> None:
        self.counters.add("archiver_jobs", job=name, event=event)
        self.counters.observe("archiver_job_seconds", time.monotonic() - started, job=name)

    async def _run_through_outages(self, job: Any, threads: ThreadPoolExecutor, report: JobReport) -> Any:
        while True:
            try:
                return await self._run_once(job, threads, report)
            except Lost as lost:
                log.warning("job_waits", **_ids(job), error=str(lost))
                await asyncio.get_running_loop().run_in_executor(threads, self.wait_until_back)

    async def _run_once(self, job: Any, threads: ThreadPoolExecutor, report: JobReport) -> Any:
        try:
            envelope = JobEnvelope.decode(job.name, job.data)
            processor = self.processors[job.name]
        except UnknownJob as error:
            if _age_seconds(job) < _UPGRADE_SECONDS:  # left to a worker of a newer release
                log.warning("job_of_another_release", **_ids(job), reason=str(error))
                raise Later(_UNKNOWN_PAUSE_SECONDS) from error
            raise UnrecoverableError(str(error)) from error
        except (BadJob, KeyError) as error:
            # A job that this release does not understand will not become valid: no attempt is spent on it.
            raise UnrecoverableError(str(error)) from error
        seconds = type(envelope.job).timeout_seconds
        work = asyncio.get_running_loop().run_in_executor(threads, self._call, processor, envelope, report)
        try:
            # A thread cannot be cancelled: without the shield, the future would be cancelled while the processor goes on.
            return await asyncio.wait_for(asyncio.shield(work), seconds)
        except TimeoutError:
            raise RuntimeError(f"{job.name} took longer than {seconds:.0f} s") from None

    def _call(self, processor: Callable[[Any, Any, Any], Any], envelope: JobEnvelope, report: JobReport) -> Any:
        """Every line that the job logs names it and what it belongs to."""
        name, ids = type(envelope.job).name, {"job_id": envelope.id, "correlation_id": envelope.correlation_id}
        try:
            with (
                log_context(job=name, **ids),
                copy_lines(report.line),
                report.collect(),
                tracing.span(name, envelope.trace, queue=self.queue, **ids),
            ):
                return processor(envelope.job, self.work, envelope)
        except Exception as error:
            if self.is_outage(error):
                raise Lost(first_line(error)) from error
            raise

    async def _drain(self, worker: Worker, work: asyncio.Task[Any]) -> bool:
        """True if every job finished in time."""
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
        return bool(done)


async def _publish_often(job: Any, report: JobReport) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        await _publish(job, report)


async def _end_report(job: Any, report: JobReport, publishing: asyncio.Task[None], text: str) -> None:
    publishing.cancel()
    report.line(text)
    await _publish(job, report)


async def _publish(job: Any, report: JobReport) -> None:
    """A report that can't be written is lost: it is for people, and no job fails for it."""
    with contextlib.suppress(redis.RedisError, OSError):
        await report.publish(job.queue.client, job.queue.backend.toKey(job.id))


async def _delay(job: Any, token: str, seconds: float) -> None:
    """Resets the counters, because BullMQ counts attempts and stalls over a job's whole life and this attempt did not fail."""
    await job.queue.client.hset(job.queue.backend.toKey(job.id), mapping={"atm": 0, "stc": 0})
    job.queue.lockManager.untrack_job(job.id)  # the job no longer has a lock to renew
    await job.moveToDelayed(round((time.time() + seconds) * 1000), token)


def _age_seconds(job: Any) -> float:
    return time.time() - float(job.timestamp) / 1000


def _log_cause(queue: QueueName, ended: set[asyncio.Task[Any]]) -> None:
    for task in ended:
        error = None if task.cancelled() else task.exception()
        log.error("worker_loop_died", queue=queue, error=str(error or "ended without an error"))


def _ids(job: Any) -> dict[str, Any]:
    return {"job": job.name, "id": job.id, "attempt": job.attemptsMade} if job is not None else {}
