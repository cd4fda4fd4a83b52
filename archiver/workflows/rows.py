"""Runs and steps as the database has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from archiver.db.states import StepState, WorkflowState

OPEN_STATES = frozenset({WorkflowState.QUEUED, WorkflowState.RUNNING, WorkflowState.ROLLING_BACK})


@dataclass(frozen=True, slots=True)
class RunRow:
    id: UUID
    workflow: str
    version: int
    owner: str
    owner_name: str
    correlation_id: str
    input: Any
    state: WorkflowState
    error: str | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class StepRow:
    step: str
    part: int
    group_number: int
    state: StepState
    attempts: int
    attempts_allowed: int
    undo_attempts: int
    doorbell: UUID | None
    is_due: bool
    result: Any
    progress_done: int
    progress_total: int
    error: str | None

    @property
    def is_busy(self) -> bool:
        return self.state in (StepState.RUNNING, StepState.UNDOING)

    @property
    def has_ended_well(self) -> bool:
        return self.state in (StepState.DONE, StepState.SKIPPED)


@dataclass(frozen=True, slots=True)
class WorkflowProgress:
    """A run as people see it."""

    id: UUID
    workflow: str
    owner_name: str
    state: WorkflowState
    step: str | None
    """The step that runs, or that failed."""
    done: int
    total: int
    error: str | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES
