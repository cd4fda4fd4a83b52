"""What a running job reports to those who watch the queue, such as Bull Board: its progress, and the lines that it logs.

The job's thread collects; the worker's event loop writes it to Redis now and then. Reports are for people: nothing reads them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_LINES = 100
"""Kept for each job."""
# Only while the job is there: a report must not bring back what was removed.
_PUBLISH = """
    if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
    if ARGV[1] ~= '' then redis.call('HSET', KEYS[1], 'progress', ARGV[1]) end
    for i = 3, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
    redis.call('LTRIM', KEYS[2], -tonumber(ARGV[2]), -1)
    return 1"""

_current: ContextVar[JobReport | None] = ContextVar("job_report", default=None)


@dataclass(slots=True)
class JobReport:
    _progress: dict[str, int] | int | None = None
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @contextmanager
    def collect(self) -> Iterator[None]:
        """What this thread reports within the block belongs to the job."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def progress(self, value: dict[str, int] | int) -> None:
        self._progress = value

    def line(self, text: str) -> None:
        self._lines.append(f"{datetime.now(UTC):%H:%M:%S} {text}")

    async def publish(self, client: Any, key: str) -> None:
        """`key`: of the job. Writes what is new."""
        progress, self._progress = self._progress, None
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if progress is not None or lines:
            value = "" if progress is None else json.dumps(progress)
            await client.eval(_PUBLISH, 2, key, f"{key}:logs", value, _LINES, *lines)


def report_progress(done: int, total: int | None) -> None:
    """In a job's thread: how far it is. Elsewhere it does nothing. Cheap enough to call for each message."""
    report = _current.get()
    if report is not None:
        report.progress({"done": done, "total": total} if total else {"done": done})


def report_line(text: str) -> None:
    report = _current.get()
    if report is not None:
        report.line(text)
