"""The SQL of workflows. Whoever changes a step holds the lock of its run's row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.states import StepState, WorkflowState
from archiver.db.values import json_text
from archiver.workflows.rows import RunRow, StepRow, WorkflowProgress

if TYPE_CHECKING:
    from archiver.workflows.step_run import StepClaim

_RUN = (
    "id, workflow, version, owner, owner_name, correlation_id, input, state, error, cancel_requested_at, created_at,"
    " started_at, finished_at"
)
_STEP = (
    "step, part, group_number, state, attempts, attempts_allowed, undo_attempts, doorbell, available_at <= now() AS is_due,"
    " result, progress_done, progress_total, error"
)
_MINE = "run_id = :run_id AND step = :step AND part = :part AND fence = :fence AND state IN ('running', 'undoing')"
_OPEN = "('queued', 'running', 'rolling_back')"

_INSERT_RUN = text(f"""
    INSERT INTO workflow_runs (id, workflow, version, owner, owner_name, key, correlation_id, input)
    VALUES (:id, :workflow, :version, :owner, :owner_name, :key, :correlation_id, CAST(:input AS jsonb)) RETURNING {_RUN}""")  # noqa: S608
_BY_KEY = text(f"SELECT {_RUN} FROM workflow_runs WHERE workflow = :workflow AND owner = :owner AND key = :key")  # noqa: S608
_COUNT_OPEN = text(
    f"SELECT count(*) FROM workflow_runs WHERE workflow = :workflow AND owner = :owner AND state IN {_OPEN}"  # noqa: S608
)
_COUNT_ALL_OPEN = text(f"SELECT count(*) FROM workflow_runs WHERE workflow = :workflow AND state IN {_OPEN}")  # noqa: S608
_LAST_STARTED = text("SELECT max(created_at) FROM workflow_runs WHERE workflow = :workflow")
_STEPS = text(f"SELECT {_STEP} FROM workflow_steps WHERE run_id = :run_id ORDER BY group_number, position, part")  # noqa: S608
_SET_STATE = text("""
    UPDATE workflow_runs SET state = :state, error = coalesce(error, :error), started_at = coalesce(started_at, now()),
        finished_at = CASE WHEN :state IN ('done', 'failed', 'cancelled') THEN now() END
    WHERE id = :run_id""")
_INSERT_STEPS = text("""
    INSERT INTO workflow_steps (run_id, step, part, group_number, position, state, attempts_allowed)
    SELECT :run_id, :step, part, :group_number, :position, :state, :attempts FROM generate_series(0, :last) AS part""")
_CLAIM = text("""
    UPDATE workflow_steps SET state = 'running', attempts = attempts + 1, fence = fence + 1, doorbell = :doorbell,
        started_at = coalesce(started_at, now()), error = NULL
    WHERE run_id = :run_id AND step = :step AND part = :part AND state = 'waiting' RETURNING fence""")
_CLAIM_ROLLBACK = text("""
    UPDATE workflow_steps SET state = 'undoing', undo_attempts = undo_attempts + 1, fence = fence + 1, doorbell = :doorbell
    WHERE run_id = :run_id AND step = :step AND part = :part AND state IN ('done', 'failed', 'undoing') RETURNING fence""")
_DONE = text(f"""
    UPDATE workflow_steps SET state = 'done', result = CAST(:result AS jsonb), doorbell = NULL, finished_at = now(),
        progress_done = progress_total WHERE {_MINE}""")  # noqa: S608
_RETRY = text(f"""
    UPDATE workflow_steps SET state = 'waiting', doorbell = NULL, error = :error, attempts = attempts - :refund,
        available_at = now() + :seconds * interval '1 second' WHERE {_MINE}""")  # noqa: S608
_FAIL = text(f"""
    UPDATE workflow_steps SET state = 'failed', doorbell = NULL, error = :error, finished_at = now() WHERE {_MINE}""")  # noqa: S608
_UNDONE = text(f"""
    UPDATE workflow_steps SET state = :state, doorbell = NULL, error = coalesce(:error, error) WHERE {_MINE}""")  # noqa: S608
_UNDO_LATER = text(f"UPDATE workflow_steps SET doorbell = NULL, error = :error WHERE {_MINE}")  # noqa: S608
_RECLAIM = text("""
    UPDATE workflow_steps SET doorbell = NULL,
        state = CASE WHEN state = 'undoing' THEN 'undoing' WHEN attempts < attempts_allowed THEN 'waiting' ELSE 'failed' END,
        error = CASE WHEN state = 'undoing' OR attempts < attempts_allowed THEN error
                     ELSE format('the process that ran it ended without a result, %s times', attempts) END
    WHERE run_id = :run_id AND doorbell = :doorbell AND state IN ('running', 'undoing')""")
_STOP_WAITING = text("""
    UPDATE workflow_steps SET state = CASE WHEN attempts = 0 THEN 'skipped' ELSE 'failed' END
    WHERE run_id = :run_id AND state = 'waiting'""")
_REPORT = text(f"""
    UPDATE workflow_steps SET progress_done = :done, progress_total = :total WHERE {_MINE}
    RETURNING (SELECT cancel_requested_at IS NOT NULL FROM workflow_runs WHERE id = :run_id)""")  # noqa: S608
_KEEP_DOORBELL = text("""
    UPDATE outbox SET available_at = now() + :seconds * interval '1 second' WHERE id = :doorbell AND sent_at IS NULL
        AND available_at > now()""")
_CANCEL = text(f"""
    UPDATE workflow_runs SET cancel_requested_at = coalesce(cancel_requested_at, now())
    WHERE id = :run_id AND state IN {_OPEN} RETURNING id""")  # noqa: S608
_PROGRESS = f"""
    SELECT r.id, r.workflow, r.owner_name, r.state, s.step, coalesce(s.done, 0) AS done, coalesce(s.total, 0) AS total, r.error,
        r.created_at, r.finished_at
    FROM workflow_runs r LEFT JOIN LATERAL (
        SELECT x.step, CAST(sum(x.progress_done) AS bigint) AS done, CAST(sum(x.progress_total) AS bigint) AS total
        FROM workflow_steps x
        WHERE x.run_id = r.id AND x.state NOT IN ('skipped', 'undone')
        GROUP BY x.group_number, x.step
        ORDER BY bool_or(x.state IN ('failed', 'undo_failed')) DESC, bool_or(x.state IN ('running', 'undoing')) DESC,
            x.group_number DESC, x.step LIMIT 1) AS s ON true
    WHERE {{which}} ORDER BY r.state IN {_OPEN} DESC, r.id DESC LIMIT :limit"""  # noqa: S608
_ORPHANS = text(f"""
    SELECT id FROM workflow_runs r WHERE state IN {_OPEN} AND created_at < now() - interval '1 minute' AND NOT EXISTS (
        SELECT 1 FROM outbox o WHERE o.queue = 'ingestion' AND o.job = 'advance-workflow'
            AND o.payload -> 'data' ->> 'run_id' = CAST(r.id AS text))
    ORDER BY id LIMIT 100""")  # noqa: S608
_FREE_ORPHANED_STEPS = text("""
    UPDATE workflow_steps SET doorbell = :doorbell WHERE run_id = :run_id AND state IN ('running', 'undoing')""")
_OTHER_DOORBELL = text("""
    SELECT 1 FROM outbox WHERE queue = 'ingestion' AND job = 'advance-workflow' AND id <> :doorbell
        AND payload -> 'data' ->> 'run_id' = :run_id LIMIT 1""")
_TIDY = text("""
    DELETE FROM workflow_runs WHERE id IN (
        SELECT id FROM (
            SELECT id, finished_at, row_number() OVER (PARTITION BY workflow ORDER BY finished_at DESC) AS place
            FROM workflow_runs WHERE state IN ('done', 'failed', 'cancelled')) AS ended
        WHERE place > :kept OR finished_at < now() - :days * interval '1 day' ORDER BY finished_at LIMIT 1000)""")


@dataclass(frozen=True, slots=True)
class ReportedState:
    is_cancelled: bool


def insert_run(connection: Connection, values: dict[str, Any]) -> RunRow:
    return _run(connection.execute(_INSERT_RUN, values).one())


def run_by_key(connection: Connection, workflow: str, owner: str, key: str) -> RunRow | None:
    row = connection.execute(_BY_KEY, {"workflow": workflow, "owner": owner, "key": key}).first()
    return None if row is None else _run(row)


def count_open(connection: Connection, workflow: str, owner: str) -> int:
    return int(connection.execute(_COUNT_OPEN, {"workflow": workflow, "owner": owner}).scalar_one())


def count_all_open(connection: Connection, workflow: str) -> int:
    return int(connection.execute(_COUNT_ALL_OPEN, {"workflow": workflow}).scalar_one())


def last_started(connection: Connection, workflow: str) -> datetime | None:
    found: datetime | None = connection.execute(_LAST_STARTED, {"workflow": workflow}).scalar_one()
    return found


def lock_starts(connection: Connection, workflow: str, owner: str) -> None:
    name = f"archiver:workflow:{workflow}:{owner}"
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name})


def load_run(connection: Connection, run_id: UUID, *, for_update: bool = False) -> RunRow | None:
    lock = " FOR UPDATE" if for_update else ""
    row = connection.execute(text(f"SELECT {_RUN} FROM workflow_runs WHERE id = :id{lock}"), {"id": run_id}).first()  # noqa: S608
    return None if row is None else _run(row)


def load_steps(connection: Connection, run_id: UUID) -> list[StepRow]:
    rows = connection.execute(_STEPS, {"run_id": run_id})
    return [StepRow(**{**row._asdict(), "state": StepState(row.state)}) for row in rows]


def set_state(connection: Connection, run_id: UUID, state: WorkflowState, error: str | None = None) -> None:
    """The first error stays: what went wrong afterwards is a consequence."""
    connection.execute(_SET_STATE, {"run_id": run_id, "state": str(state), "error": error})


def insert_steps(
    connection: Connection, run_id: UUID, step: str, group_number: int, position: int, parts: int, attempts: int
) -> None:
    """With no parts, one row that is skipped."""
    state = StepState.WAITING if parts else StepState.SKIPPED
    values = {"run_id": run_id, "step": step, "group_number": group_number, "position": position, "attempts": attempts}
    connection.execute(_INSERT_STEPS, {**values, "state": str(state), "last": max(parts, 1) - 1})


def claim(connection: Connection, run_id: UUID, row: StepRow, doorbell: UUID, *, rollback: bool) -> int:
    """Returns the fence."""
    values = {"run_id": run_id, "step": row.step, "part": row.part, "doorbell": doorbell}
    return int(connection.execute(_CLAIM_ROLLBACK if rollback else _CLAIM, values).scalar_one())


def reclaim(connection: Connection, run_id: UUID, doorbell: UUID) -> None:
    """Steps that the last process with this doorbell began and did not end."""
    connection.execute(_RECLAIM, {"run_id": run_id, "doorbell": doorbell})


def finish_step(connection: Connection, one: StepClaim, result: Any) -> bool:
    return _change(connection, _DONE, one, result=json_text(result))


def retry_step(connection: Connection, one: StepClaim, error: str | None, seconds: float, *, refund: bool = False) -> bool:
    return _change(connection, _RETRY, one, error=error, seconds=seconds, refund=int(refund))


def fail_step(connection: Connection, one: StepClaim, error: str) -> bool:
    return _change(connection, _FAIL, one, error=error)


def finish_rollback(connection: Connection, one: StepClaim, state: StepState, error: str | None = None) -> bool:
    return _change(connection, _UNDONE, one, state=str(state), error=error)


def retry_rollback(connection: Connection, one: StepClaim, error: str | None) -> bool:
    return _change(connection, _UNDO_LATER, one, error=error)


def stop_waiting(connection: Connection, run_id: UUID) -> None:
    """No step begins any more. One that was begun and waits for its next attempt has to be rolled back."""
    connection.execute(_STOP_WAITING, {"run_id": run_id})


def report(connection: Connection, one: StepClaim, done: int, total: int) -> ReportedState | None:
    """None if the step is no longer this worker's."""
    row = connection.execute(_REPORT, {**_place(one), "done": done, "total": total}).first()
    keep_doorbell(connection, one.doorbell)
    return None if row is None else ReportedState(bool(row[0]))


def keep_doorbell(connection: Connection, doorbell: UUID) -> None:
    """A run that a command drives itself has a doorbell in the future: it rings for the workers if the command dies."""
    connection.execute(_KEEP_DOORBELL, {"doorbell": doorbell, "seconds": LOCAL_SECONDS})


LOCAL_SECONDS = 120


def cancel(connection: Connection, run_id: UUID) -> bool:
    return connection.execute(_CANCEL, {"run_id": run_id}).first() is not None


def progress(connection: Connection, which: str, values: dict[str, Any], limit: int) -> list[WorkflowProgress]:
    rows = connection.execute(text(_PROGRESS.format(which=which)), {**values, "limit": limit})
    return [WorkflowProgress(**{**row._asdict(), "state": WorkflowState(row.state)}) for row in rows]


def orphans(connection: Connection) -> list[UUID]:
    return list(connection.execute(_ORPHANS).scalars())


def hand_over_steps(connection: Connection, run_id: UUID, doorbell: UUID) -> None:
    connection.execute(_FREE_ORPHANED_STEPS, {"run_id": run_id, "doorbell": doorbell})


def has_other_doorbell(connection: Connection, run_id: UUID, doorbell: UUID) -> bool:
    return connection.execute(_OTHER_DOORBELL, {"run_id": str(run_id), "doorbell": doorbell}).first() is not None


def fail_run(connection: Connection, run_id: UUID, error: str) -> None:
    set_state(connection, run_id, WorkflowState.FAILED, error)


def tidy(connection: Connection, kept: int, days: int) -> int:
    return connection.execute(_TIDY, {"kept": kept, "days": days}).rowcount


def _change(connection: Connection, statement: Any, one: StepClaim, **values: Any) -> bool:
    """False if another worker has taken the step over."""
    return connection.execute(statement, {**_place(one), **values}).rowcount > 0


def _place(one: StepClaim) -> dict[str, Any]:
    return {"run_id": one.run_id, "step": one.step.name, "part": one.part, "fence": one.fence}


def _run(row: Any) -> RunRow:
    return RunRow(**{**row._asdict(), "state": WorkflowState(row.state)})


def results_of(rows: Iterable[StepRow]) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for row in rows:
        if row.result is not None:
            found.setdefault(row.step, {})[row.part] = row.result
    return found
