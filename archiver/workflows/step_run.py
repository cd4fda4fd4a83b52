"""What a running step gets: its input, the results so far, and the ways to report and to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.config import Settings
from archiver.errors import ArchiverError
from archiver.queue.job_report import report_progress
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.workflows import statements as sql
from archiver.workflows.definition import Registry, Step, Workflow, decode

_REPORT_SECONDS = 0.5


class TookTooLong(ArchiverError):
    """The step did not end within its time."""


class StepLost(Exception):
    """Another worker has taken the step over: nothing that this one does counts any more."""


class StepCancelled(Exception):
    """Its run is to be cancelled."""


class StepInterrupted(Exception):
    """The process is stopping: the step starts again elsewhere, and loses no attempt."""


@dataclass(frozen=True, slots=True)
class WorkflowResources:
    """What all steps of one process share."""

    settings: Settings
    engine: Engine
    archive: Archive
    keyring: Keyring
    workflows: Registry
    stopping: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class StepClaim:
    """A step that this worker has claimed; its number (`fence`) is in every write."""

    run_id: UUID
    workflow: Workflow
    step: Step
    part: int
    fence: int
    doorbell: UUID
    is_rollback: bool
    owner: str
    correlation_id: str
    input: Any
    results: dict[str, dict[int, Any]]
    """Results of finished steps as JSON, by step and part."""


@dataclass(slots=True)
class StepRun:
    resources: WorkflowResources
    claim: StepClaim
    _started_at: float = field(default_factory=time.monotonic)
    _reported_at: float = 0.0
    _effects: list[Callable[[Connection], None]] = field(default_factory=list)

    @property
    def run_id(self) -> UUID:
        return self.claim.run_id

    @property
    def part(self) -> int:
        return self.claim.part

    @property
    def input(self) -> Any:
        return decode(self.claim.workflow.input, self.claim.input)

    def result(self, step: str) -> Any:
        """Of an earlier step with one part. Raises BadWorkflow if there is no such step."""
        (value,) = self.results(step)
        return value

    def results(self, step: str) -> list[Any]:
        """Of all parts of an earlier step, in order; empty if it was skipped or has not run."""
        kind = self.claim.workflow.step(step).result
        found = self.claim.results.get(step, {})
        return [decode(kind, found[part]) for part in sorted(found)]

    def has_result(self, step: str) -> bool:
        return bool(self.claim.results.get(step))

    def with_result(self, effect: Callable[[Connection], None]) -> None:
        """`effect` is part of the transaction that records the result: it happens once, or not at all."""
        self._effects.append(effect)

    def commit_effects(self, connection: Connection) -> None:
        for effect in self._effects:
            effect(connection)

    def report(self, done: int, total: int) -> None:
        """Call it often: it stores the progress twice a second, and raises if the step has to stop."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_SECONDS:
            return
        self._reported_at = now
        report_progress(done, total)
        self.check_time(now)
        with self.resources.engine.begin() as connection:
            state = sql.report(connection, self.claim, done, total)
        if state is None:
            raise StepLost
        if state.is_cancelled and not self.claim.is_rollback:
            raise StepCancelled

    def check_time(self, now: float) -> None:
        if self.resources.stopping.is_set():
            raise StepInterrupted
        seconds = self.claim.step.timeout_seconds
        if now - self._started_at > seconds:
            raise TookTooLong(f"{self.claim.step.name} took longer than {seconds:.0f} s")
