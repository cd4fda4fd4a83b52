"""Starting, cancelling, following and clearing runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.access.principal import Principal
from archiver.db.ids import uuid7
from archiver.db.values import json_text
from archiver.errors import NotFound, NotReady
from archiver.workflows import statements as sql
from archiver.workflows.advance import start_local
from archiver.workflows.definition import TooManyRuns, Workflow, encode
from archiver.workflows.planning import ring
from archiver.workflows.rows import RunRow, StepRow, WorkflowProgress

_KEPT_RUNS = 1_000
"""Finished runs of one workflow."""
_KEPT_DAYS = 90
_POLL_SECONDS = 0.2


def owner_of(principal: Principal) -> str:
    return str(principal.user_id) if principal.user_id else principal.name


def start(
    connection: Connection,
    workflow: Workflow,
    value: Any,
    principal: Principal,
    *,
    key: str | None = None,
    run_id: UUID | None = None,
    local_doorbell: UUID | None = None,
) -> RunRow:
    """Starts a run in the transaction of the caller's own rows. With a `key` that was used before, returns that run.

    Raises TooManyRuns if the owner has too many open runs. With `local_doorbell`, the caller drives the run itself.
    """
    owner = owner_of(principal)
    sql.lock_starts(connection, workflow.name, owner)
    if key is not None and (known := sql.run_by_key(connection, workflow.name, owner, key)):
        return known
    open_runs = sql.count_open(connection, workflow.name, owner)
    if open_runs >= workflow.open_runs_per_owner:
        raise TooManyRuns(f"{open_runs} runs of {workflow.name} are not finished yet: wait for them, or cancel one")
    run_id = run_id or uuid7()
    values = {"id": run_id, "workflow": workflow.name, "version": workflow.version, "owner": owner, "key": key}
    values |= {"owner_name": principal.name, "correlation_id": principal.request_id or str(run_id)}
    run = sql.insert_run(connection, {**values, "input": json_text(encode(workflow.input, value))})
    if local_doorbell is None:
        ring(connection, run_id)
    else:
        start_local(connection, run_id, local_doorbell)
    return run


def has_open(connection: Connection, workflow: Workflow) -> bool:
    """Of any owner."""
    return sql.count_all_open(connection, workflow.name) > 0


def last_started(connection: Connection, workflow: Workflow) -> datetime | None:
    """Among the runs that are still known."""
    return sql.last_started(connection, workflow.name)


def cancel(connection: Connection, run_id: UUID) -> bool:
    """What was done is rolled back. False if the run had already ended."""
    is_open = sql.cancel(connection, run_id)
    if is_open:
        ring(connection, run_id)
    return is_open


def load(connection: Connection, run_id: UUID) -> RunRow:
    run = sql.load_run(connection, run_id)
    if run is None:
        raise NotFound(f"there is no workflow run {run_id}")
    return run


def steps(connection: Connection, run_id: UUID) -> list[StepRow]:
    return sql.load_steps(connection, run_id)


def progress(connection: Connection, run_id: UUID) -> WorkflowProgress:
    found = sql.progress(connection, "r.id = :id", {"id": run_id}, 1)
    if not found:
        raise NotFound(f"there is no workflow run {run_id}")
    return found[0]


def recent(connection: Connection, limit: int = 20) -> list[WorkflowProgress]:
    """Open runs, then the ones that ended last, of all owners."""
    return sql.progress(connection, "true", {}, limit)


def running(connection: Connection, limit: int = 20) -> list[WorkflowProgress]:
    return sql.progress(connection, "r.state IN ('queued', 'running', 'rolling_back')", {}, limit)


def wait(
    engine: Engine, run_id: UUID, timeout_seconds: float, on_progress: Callable[[WorkflowProgress], None] = lambda _: None
) -> RunRow:
    """Until the run has ended. Reads the state itself, so an end before the call is not missed, nor one at the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        is_late = time.monotonic() > deadline
        with engine.connect() as connection:
            run = load(connection, run_id)
            if run.is_open:
                on_progress(progress(connection, run_id))
        if not run.is_open:
            return run
        if is_late:
            raise NotReady(f"the run {run_id} ({run.workflow}) has not ended after {timeout_seconds:.0f} s: it goes on")
        time.sleep(_POLL_SECONDS)


def maintain(connection: Connection) -> int:
    """Each tick: removes old runs, and announces open ones that have no job, as after a job that an older release gave up.

    Returns the number of runs that were announced.
    """
    sql.tidy(connection, _KEPT_RUNS, _KEPT_DAYS)
    orphans = sql.orphans(connection)
    for run_id in orphans:
        doorbell = uuid7()
        sql.hand_over_steps(connection, run_id, doorbell)
        ring(connection, run_id, doorbell)
    return len(orphans)
