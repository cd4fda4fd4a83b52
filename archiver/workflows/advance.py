"""Goes on with a run: claims a step, runs it, records what came of it, and claims the next, until its slice is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection

from archiver.db.engine import is_away
from archiver.db.states import StepState
from archiver.errors import ArchiverError, NotAllowed, UsageError
from archiver.logs import get_logger
from archiver.queue.jobs import AdvanceWorkflow, QueueName
from archiver.sync import outbox
from archiver.workflows import statements as sql
from archiver.workflows.definition import BadWorkflow, encode
from archiver.workflows.planning import next_claim, ring
from archiver.workflows.step_run import (
    StepCancelled,
    StepClaim,
    StepInterrupted,
    StepLost,
    StepRun,
    WorkflowResources,
)

_UNDO_ATTEMPTS = 3
_LONGEST_PAUSE_SECONDS = 60.0
_INTERNAL = "internal error; see the server's log"

log = get_logger("workflows")


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What came of a step. `record` stores it, and returns False if another worker has taken the step over."""

    record: Callable[[Connection], bool]
    is_lost: bool = False
    is_interrupted: bool = False


def advance(
    resources: WorkflowResources, run_id: UUID, doorbell: UUID, is_over: Callable[[], bool], is_outage: Callable[[Any], bool]
) -> None:
    """Until nothing is left for this doorbell, or the slice is over. Safe to call again with the same doorbell after a crash.

    Errors of a server that all jobs need (`is_outage`) are raised; the step loses no attempt.
    """
    while True:
        with resources.engine.begin() as connection:
            claim = None if is_over() else next_claim(connection, resources, run_id, doorbell)
            if claim is None:
                _leave(connection, resources, run_id, doorbell, goes_on=is_over())
                return
        outcome = _perform(resources, claim, is_outage)
        if outcome.is_lost:
            return
        with resources.engine.begin() as connection:
            is_mine = outcome.record(connection)
            if outcome.is_interrupted and is_mine:
                _leave(connection, resources, run_id, doorbell, goes_on=True)
                return
        if not is_mine:
            return


def _leave(connection: Connection, resources: WorkflowResources, run_id: UUID, doorbell: UUID, *, goes_on: bool) -> None:
    if goes_on:
        sql.reclaim(connection, run_id, doorbell)
        ring(connection, run_id)
    outbox.settle(connection, doorbell)
    outbox.wake(connection, QueueName.INGESTION)  # another run may have its turn


def _perform(resources: WorkflowResources, claim: StepClaim, is_outage: Callable[[Any], bool]) -> StepOutcome:
    run = StepRun(resources, claim)
    with _logged(claim):
        try:
            outcome = _undo(run) if claim.is_rollback else _run(run)
            log.info("step_ended", rollback=claim.is_rollback)
            return outcome
        except StepLost:
            log.warning("step_lost")
            return StepOutcome(lambda _: False, is_lost=True)
        except StepCancelled:
            return StepOutcome(lambda connection: sql.retry_step(connection, claim, None, 0))
        except StepInterrupted:
            return StepOutcome(lambda connection: _refund(connection, claim), is_interrupted=True)
        except Exception as error:
            if is_outage(error):
                _refund_now(resources, claim)
                raise
            return _failure(claim, error)


def _run(run: StepRun) -> StepOutcome:
    result = encode(run.claim.step.result, run.claim.step.run(run))

    def record(connection: Connection) -> bool:
        if not sql.finish_step(connection, run.claim, result):
            return False
        run.commit_effects(connection)
        return True

    return StepOutcome(record)


def _undo(run: StepRun) -> StepOutcome:
    rollback = run.claim.step.rollback
    assert rollback is not None
    rollback(run)

    def record(connection: Connection) -> bool:
        run.commit_effects(connection)
        return sql.finish_rollback(connection, run.claim, StepState.UNDONE)

    return StepOutcome(record)


def _failure(claim: StepClaim, error: Exception) -> StepOutcome:
    is_ours = isinstance(error, ArchiverError)
    reason = str(error) if is_ours else _INTERNAL
    if is_ours:
        log.warning("step_failed", rollback=claim.is_rollback, reason=reason)
    else:
        log.exception("step_failed", rollback=claim.is_rollback)
    helps = not isinstance(error, UsageError | NotAllowed | BadWorkflow)
    return StepOutcome(lambda connection: _record_failure(connection, claim, reason, may_retry=helps))


def _record_failure(connection: Connection, claim: StepClaim, reason: str, *, may_retry: bool) -> bool:
    row = next(one for one in sql.load_steps(connection, claim.run_id) if (one.step, one.part) == (claim.step.name, claim.part))
    if claim.is_rollback:
        if row.undo_attempts < _UNDO_ATTEMPTS:
            return sql.retry_rollback(connection, claim, f"rollback: {reason}")
        return sql.finish_rollback(connection, claim, StepState.UNDO_FAILED, f"could not be rolled back: {reason}")
    if not may_retry or row.attempts >= row.attempts_allowed:
        return sql.fail_step(connection, claim, reason)
    seconds = min(_LONGEST_PAUSE_SECONDS, 2.0 ** (row.attempts - 1))
    later = datetime.now(UTC) + timedelta(seconds=seconds)
    outbox.announce(connection, AdvanceWorkflow(claim.run_id), available_at=later)
    return sql.retry_step(connection, claim, reason, seconds)


def _refund(connection: Connection, claim: StepClaim) -> bool:
    if claim.is_rollback:
        return sql.retry_rollback(connection, claim, None)
    return sql.retry_step(connection, claim, None, 0, refund=True)


def _refund_now(resources: WorkflowResources, claim: StepClaim) -> None:
    try:
        with resources.engine.begin() as connection:
            _refund(connection, claim)
    except Exception as error:
        if not is_away(error):
            raise


@contextmanager
def _logged(claim: StepClaim) -> Iterator[None]:
    """Every line that is logged during the step says what it belongs to."""
    values = {"correlation_id": claim.correlation_id, "workflow": claim.workflow.name, "run": str(claim.run_id)}
    with structlog.contextvars.bound_contextvars(**values, step=claim.step.name, part=claim.part):
        yield


def give_up(connection: Connection, run_id: UUID, doorbell: UUID, reason: str) -> None:
    """BullMQ has given a doorbell's job up, after several dead workers: another one goes on, as long as attempts are left."""
    busy = any(row.doorbell == doorbell for row in sql.load_steps(connection, run_id) if row.is_busy)
    run = sql.load_run(connection, run_id, for_update=True)
    if run is None or not run.is_open:
        return
    if busy:
        sql.reclaim(connection, run_id, doorbell)
        ring(connection, run_id)
    elif not sql.has_other_doorbell(connection, run_id, doorbell):
        sql.fail_run(connection, run_id, f"its job was given up: {reason}")


def drive(resources: WorkflowResources, run_id: UUID, doorbell: UUID, on_poll: Callable[[], None] = lambda: None) -> None:
    """Runs a whole run in this process, for commands: workers need not be there, and take over if this process dies."""
    while True:
        advance(resources, run_id, doorbell, lambda: False, lambda _: False)
        with resources.engine.begin() as connection:
            run = sql.load_run(connection, run_id)
            if run is None or not run.is_open:
                return
            start_local(connection, run_id, doorbell)
        on_poll()
        time.sleep(0.1)


def start_local(connection: Connection, run_id: UUID, doorbell: UUID) -> None:
    """A doorbell that rings for the workers only if this process stops postponing it."""
    later = datetime.now(UTC) + timedelta(seconds=sql.LOCAL_SECONDS)
    outbox.announce(connection, AdvanceWorkflow(run_id), row_id=doorbell, available_at=later)
