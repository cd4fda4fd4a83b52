"""What each worker process reports about itself every few seconds, in its row of `worker_processes`."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil
from sqlalchemy import Engine

from archiver.db.engine import DATABASE_ERRORS
from archiver.db.sql import run

_REPORT = """
    UPDATE worker_processes SET resident_bytes = :resident_bytes, cpu_seconds = :cpu_seconds, running_jobs = :running_jobs
    WHERE queue = :queue AND host = :host AND pid = :pid"""


def process_name() -> str:
    """As BullMQ lists it, too."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(slots=True)
class WorkerReporter:
    engine: Engine
    queue: str
    running_jobs: int = 0

    def note_running(self, jobs: int) -> None:
        self.running_jobs = jobs

    def report(self) -> None:
        """Skipped while Postgres is down."""
        process = psutil.Process()
        times = process.cpu_times()
        measured = {"resident_bytes": process.memory_info().rss, "cpu_seconds": times.user + times.system}
        place = {"queue": str(self.queue), "host": socket.gethostname(), "pid": os.getpid()}
        try:
            with self.engine.begin() as connection:
                run(connection, _REPORT, **measured, **place, running_jobs=self.running_jobs)
        except DATABASE_ERRORS:
            return
