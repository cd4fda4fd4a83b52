"""What comes next in a run, decided while its row is locked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.states import StepState, WorkflowState
from archiver.errors import ArchiverError
from archiver.queue.jobs import AdvanceWorkflow
from archiver.sync import outbox
from archiver.workflows import statements as sql
from archiver.workflows.definition import MAX_PARTS, BadWorkflow, Step, Workflow
from archiver.workflows.rows import RunRow, StepRow
from archiver.workflows.step_run import StepClaim, StepRun, WorkflowResources

_DOORBELLS_PER_RUN = 4
"""How many workers can work on the parts of one run at the same time."""

_NEWER_SECONDS = 15.0
_NEWER_RUN_AGE = timedelta(hours=1)
"""While an upgrade is under way, workers of the release before leave runs of the next one to its workers."""


def next_claim(connection: Connection, resources: WorkflowResources, run_id: UUID, doorbell: UUID) -> StepClaim | None:
    """Claims the next step or rollback. None if there is nothing to do for this doorbell: the run has ended, or the steps that
    it waits for belong to other doorbells, which stay in the outbox until those steps have ended."""
    run = sql.load_run(connection, run_id, for_update=True)
    if run is None or not run.is_open:
        return None
    sql.reclaim(connection, run_id, doorbell)
    sql.keep_doorbell(connection, doorbell)
    workflow = resources.workflows.get(run.workflow)
    if (workflow is None or run.version > workflow.version) and _is_recent(run):
        later = datetime.now(UTC) + timedelta(seconds=_NEWER_SECONDS)  # a worker of the release that knows it may come by
        outbox.announce(connection, AdvanceWorkflow(run_id), available_at=later)
        return None
    if workflow is None:
        sql.set_state(connection, run_id, WorkflowState.FAILED, f"this release has no workflow named {run.workflow!r}")
        return None
    if not workflow.can_run(run.version) and run.state is not WorkflowState.ROLLING_BACK:
        _roll_back(connection, run, _refusal(run, workflow))
        run = _reload(connection, run)
    return _Plan(connection, resources, run, workflow, doorbell).next()


def _is_recent(run: RunRow) -> bool:
    return datetime.now(UTC) - run.created_at < _NEWER_RUN_AGE


def _refusal(run: RunRow, workflow: Workflow) -> str:
    return (
        f"this run was started by another release ({run.workflow}, version {run.version}), and this release runs version"
        f" {workflow.version}: start it again"
    )


def _roll_back(connection: Connection, run: RunRow, error: str | None) -> None:
    sql.stop_waiting(connection, run.id)
    sql.set_state(connection, run.id, WorkflowState.ROLLING_BACK, error)


def _reload(connection: Connection, run: RunRow) -> RunRow:
    found = sql.load_run(connection, run.id)
    assert found is not None
    return found


class _Plan:
    def __init__(
        self, connection: Connection, resources: WorkflowResources, run: RunRow, workflow: Workflow, doorbell: UUID
    ) -> None:
        self._connection, self._resources, self._run, self._workflow = connection, resources, run, workflow
        self._doorbell = doorbell
        self._rows = sql.load_steps(connection, run.id)

    def next(self) -> StepClaim | None:
        if self._run.state is WorkflowState.ROLLING_BACK:
            return self._next_rollback()
        failed = next((row for row in self._rows if row.state is StepState.FAILED), None)
        if failed is not None or self._run.cancel_requested_at is not None:
            return self._begin_rollback(None if failed is None else _error(failed))
        if self._run.state is WorkflowState.QUEUED:
            sql.set_state(self._connection, self._run.id, WorkflowState.RUNNING)
        try:
            return self._next_step()
        except ArchiverError as error:  # the number of parts could not be decided
            return self._begin_rollback(str(error))

    def _begin_rollback(self, error: str | None) -> StepClaim | None:
        if any(row.is_busy for row in self._rows):
            return None  # the last one to end begins the rollback
        _roll_back(self._connection, self._run, error)
        self._run = _reload(self._connection, self._run)
        self._rows = sql.load_steps(self._connection, self._run.id)
        return self._next_rollback()

    def _next_step(self) -> StepClaim | None:
        for number, group in enumerate(self._workflow.groups):
            rows = [row for row in self._rows if row.group_number == number]
            if not rows:
                rows = self._begin_group(number, group)
            if all(row.has_ended_well for row in rows):
                continue
            ready = next((row for row in rows if row.state is StepState.WAITING and row.is_due), None)
            return None if ready is None else self._claim(ready, rollback=False)
        sql.set_state(self._connection, self._run.id, WorkflowState.DONE)
        return None

    def _begin_group(self, number: int, group: Sequence[Step]) -> list[StepRow]:
        total = 0
        for position, step in enumerate(group):
            parts = self._parts(step)
            total += parts
            sql.insert_steps(self._connection, self._run.id, step.name, number, position, parts, step.attempts)
        for _ in range(min(total - 1, _DOORBELLS_PER_RUN - 1)):
            ring(self._connection, self._run.id)
        self._rows = sql.load_steps(self._connection, self._run.id)
        return [row for row in self._rows if row.group_number == number]

    def _parts(self, step: Step) -> int:
        if step.parts is None:
            return 1
        parts = step.parts(StepRun(self._resources, self._as_claim(step, 0, 0, rollback=False)))
        if not 0 <= parts <= MAX_PARTS:
            raise BadWorkflow(f"{step.name}: {parts} parts; a step has at most {MAX_PARTS}")
        return parts

    def _next_rollback(self) -> StepClaim | None:
        known = {step.name: step for step in self._workflow.steps()}
        for row in reversed(self._rows):
            if row.state is StepState.UNDOING and row.doorbell is not None:
                return None
            if row.state is StepState.RUNNING:
                return None
            step = known.get(row.step)
            if row.state in (StepState.DONE, StepState.FAILED, StepState.UNDOING) and step is not None and step.rollback:
                return self._claim(row, rollback=True)
        cancelled = self._run.cancel_requested_at is not None and self._run.error is None
        sql.set_state(self._connection, self._run.id, WorkflowState.CANCELLED if cancelled else WorkflowState.FAILED)
        return None

    def _claim(self, row: StepRow, *, rollback: bool) -> StepClaim:
        fence = sql.claim(self._connection, self._run.id, row, self._doorbell, rollback=rollback)
        return self._as_claim(self._workflow.step(row.step), row.part, fence, rollback=rollback)

    def _as_claim(self, step: Step, part: int, fence: int, *, rollback: bool) -> StepClaim:
        run = self._run
        return StepClaim(
            run_id=run.id,
            workflow=self._workflow,
            step=step,
            part=part,
            fence=fence,
            doorbell=self._doorbell,
            is_rollback=rollback,
            owner=run.owner,
            correlation_id=run.correlation_id,
            input=run.input,
            results=sql.results_of(self._rows),
        )


def ring(connection: Connection, run_id: UUID, row_id: UUID | None = None) -> UUID:
    """Announces a job that goes on with the run."""
    return outbox.announce(connection, AdvanceWorkflow(run_id), row_id=row_id)


def _error(row: StepRow) -> str:
    return f"{row.step}: {row.error}"
