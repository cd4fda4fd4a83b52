"""How a worker honours a pause (archiver.db.pause): it ends as for a stop, waits, and starts itself again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from archiver.db.engine import DATABASE_ERRORS
from archiver.db.pause import WorkerPresence
from archiver.logs import get_logger

_RESUMED = "ARCHIVER_WORKER_RESUMED"
_BEAT_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_CHILD_SECONDS = 3.0

log = get_logger("workers")


def was_resumed() -> bool:
    """Whether this process worked before a pause. Asked once: its children have nothing to do with it."""
    return os.environ.pop(_RESUMED, None) is not None


@dataclass(frozen=True, slots=True)
class Pausing:
    presence: WorkerPresence
    alive_file: Path | None = None
    _seen: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: list[threading.Thread] = field(default_factory=list)

    def begin_work(self, report: Callable[[str], None]) -> None:
        """Waits for the end of a pause, and looks for the next one from then on."""
        while (pause := self.presence.beat()) is not None:
            report(f"paused: {pause.reason}")
            self._wait()
        beating = threading.Thread(target=self._beat_on, daemon=True, name="presence")
        beating.start()
        self._thread.append(beating)

    async def requested(self) -> None:
        """Returns when this worker has to pause."""
        while not self._seen.is_set():  # noqa: ASYNC110  (set by a thread)
            await asyncio.sleep(_LOOK_SECONDS)

    def wait_and_restart(self) -> None:
        """Replaces the process by a new one with the same pid and arguments, which reads code, settings and schema again."""
        self._stop_beating()
        self._wait()
        log.info("worker_resumes")
        self.leave()
        _end_children()
        sys.stderr.flush()
        os.environ[_RESUMED] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606

    def leave(self) -> None:
        self._stop_beating()
        with contextlib.suppress(*DATABASE_ERRORS):
            self.presence.leave()

    def _beat_on(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            with contextlib.suppress(*DATABASE_ERRORS):  # while the database is away, nothing can be migrated
                if (pause := self.presence.beat()) is not None and not self._seen.is_set():
                    log.info("worker_pauses", reason=pause.reason)
                    self._seen.set()

    def _stop_beating(self) -> None:
        self._over.set()
        for beating in self._thread:
            beating.join(_CHILD_SECONDS)

    def _wait(self) -> None:
        """Until there is no pause. SIGTERM and SIGINT end the process: nothing is under way."""
        before = {number: signal.signal(number, lambda *_: self._exit()) for number in (signal.SIGTERM, signal.SIGINT)}
        while self._is_paused():
            if self.alive_file is not None:
                self.alive_file.touch()
            time.sleep(_LOOK_SECONDS)
        for number, handler in before.items():
            signal.signal(number, handler)

    def _is_paused(self) -> bool:
        try:
            return self.presence.beat(is_paused=True) is not None
        except DATABASE_ERRORS:  # the migration may have restarted the server
            return True

    def _exit(self) -> None:
        self.leave()
        os._exit(0)


def _end_children() -> None:
    """Nobody would wait for them in the new process."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=_CHILD_SECONDS)
