"""Workflows: their runs, and the steps of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import StepState, WorkflowState
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonObject, one_of

_OPEN = text("state IN ('queued', 'running', 'rolling_back')")
_ENDED = text("state IN ('done', 'failed', 'cancelled')")


class WorkflowRunTable(Base):
    __tablename__ = "workflow_runs"

    id: Mapped[Id]
    workflow: Mapped[str]
    version: Mapped[int]
    owner: Mapped[str]
    """The user's id, or the name of a principal without one. Limits and keys are per owner."""
    owner_name: Mapped[str]
    key: Mapped[str | None]
    """Starting the same workflow with the same key again returns this run."""
    correlation_id: Mapped[str]
    input: Mapped[JsonObject]
    state: Mapped[str] = mapped_column(server_default=WorkflowState.QUEUED)
    error: Mapped[str | None]
    cancel_requested_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("state", WorkflowState),
        Index("uq_workflow_runs_key", "workflow", "owner", "key", unique=True, postgresql_where=text("key IS NOT NULL")),
        Index("ix_workflow_runs_open", "workflow", "owner", postgresql_where=_OPEN),
        Index("ix_workflow_runs_ended", "workflow", text("finished_at DESC"), postgresql_where=_ENDED),
    )


class WorkflowStepTable(Base):
    """Inserted when its group begins, because the number of parts may depend on earlier results."""

    __tablename__ = "workflow_steps"

    run_id: Mapped[UUID] = mapped_column(ForeignKey("workflow_runs.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[str] = mapped_column(primary_key=True)
    part: Mapped[int] = mapped_column(primary_key=True)
    group_number: Mapped[int]
    position: Mapped[int]
    """Within its group; rollbacks run in the reverse order of group, position and part."""
    state: Mapped[str] = mapped_column(server_default=StepState.WAITING)
    attempts: Mapped[Count]
    attempts_allowed: Mapped[int]
    undo_attempts: Mapped[Count]
    fence: Mapped[Count]
    """Rises with each claim, so that a worker that lost the step can't write its result."""
    doorbell: Mapped[UUID | None]
    """The outbox row whose job works on it. If that job comes again, its worker has died."""
    available_at: Mapped[CreatedAt]
    result: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    progress_done: Mapped[Count]
    progress_total: Mapped[Count]
    error: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]

    __table_args__ = (one_of("state", StepState),)
