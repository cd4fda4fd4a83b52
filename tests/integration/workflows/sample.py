"""A workflow with three groups whose effects can be counted, and processes that die where a test wants."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, event, text

from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db.engine import make_engine
from archiver.errors import ArchiverError
from archiver.workflows import service
from archiver.workflows.advance import advance
from archiver.workflows.definition import Step, Workflow, registry
from archiver.workflows.rows import RunRow
from archiver.workflows.step_run import StepRun, WorkflowResources

PARTS = 2


@dataclass(frozen=True, slots=True)
class SampleInput:
    fails_in: str = ""
    fail_times: int = 99


@dataclass(frozen=True, slots=True)
class Number:
    value: int


def note(connection: Connection, kind: str, run: StepRun) -> None:
    values = {"kind": kind, "step": run.claim.step.name, "part": run.part, "run": run.run_id}
    connection.execute(text("INSERT INTO effects (run, kind, step, part) VALUES (:run, :kind, :step, :part)"), values)


def work(run: StepRun) -> Number:
    run.with_result(lambda connection: note(connection, "done", run))
    row = _tries(run)
    if run.input.fails_in == run.claim.step.name and row <= run.input.fail_times:
        raise ArchiverError(f"{run.claim.step.name} fails on purpose")
    return Number(sum(number.value for step in EARLIER[run.claim.step.name] for number in run.results(step)) + run.part + 1)


def _tries(run: StepRun) -> int:
    statement = text("SELECT attempts FROM workflow_steps WHERE run_id = :run AND step = :step AND part = :part")
    with run.resources.engine.connect() as connection:
        values = {"run": run.run_id, "step": run.claim.step.name, "part": run.part}
        return int(connection.execute(statement, values).scalar_one())


def undo(run: StepRun) -> None:
    run.with_result(lambda connection: note(connection, "undone", run))


EARLIER = {"first": (), "many": ("first",), "other": ("first",), "last": ("many", "other")}


def step(name: str, **options: Any) -> Step:
    return Step(name, work, Number, **{"rollback": undo, "attempts": 2, **options})


SAMPLE = Workflow(
    "sample",
    2,
    SampleInput,
    ((step("first"),), (step("many", parts=lambda run: PARTS), step("other")), (step("last"),)),
    open_runs_per_owner=2_000,
)
IN_ORDER = [("first", 0), *(("many", part) for part in range(PARTS)), ("other", 0), ("last", 0)]


@dataclass(slots=True)
class SampleWorld:
    url: str
    engine: Engine
    workflow: Workflow = SAMPLE
    resources: WorkflowResources = field(init=False)
    _busy: set[UUID] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.resources = resources(self.engine, self.workflow)
        with self.engine.begin() as connection:
            connection.execute(
                text("CREATE TABLE IF NOT EXISTS effects (n bigserial, run uuid, kind text, step text, part bigint)")
            )

    def start(self, value: Any = SampleInput(), principal: Principal = LOCAL_OPERATOR, **options: Any) -> UUID:  # noqa: B008
        with self.engine.begin() as connection:
            return service.start(connection, self.workflow, value, principal, **options).id

    def run(self, run_id: UUID) -> RunRow:
        with self.engine.connect() as connection:
            return service.load(connection, run_id)

    def effects(self, kind: str, run_id: UUID) -> list[tuple[str, int]]:
        statement = text("SELECT step, part FROM effects WHERE kind = :kind AND run = :run ORDER BY n")
        with self.engine.connect() as connection:
            return [(row.step, row.part) for row in connection.execute(statement, {"kind": kind, "run": run_id})]

    def doorbells(self) -> list[tuple[UUID, UUID]]:
        """As the relay would send them; a pause before the next attempt is not waited for."""
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE workflow_steps SET available_at = now() WHERE available_at > now()"))
            statement = text("SELECT id, payload -> 'data' ->> 'run_id' FROM outbox WHERE job = 'advance-workflow' ORDER BY id")
            return [(row[0], UUID(row[1])) for row in connection.execute(statement)]

    def finish(self) -> None:
        """Until no doorbell is left. As in BullMQ, only one worker has a doorbell's job at a time."""
        while doorbells := self.doorbells():
            for doorbell, run_id in doorbells:
                with self._lock:
                    is_mine = doorbell not in self._busy
                    self._busy.add(doorbell)
                if is_mine:
                    advance(self.resources, run_id, doorbell, lambda: False, lambda _: False)
                    self._busy.discard(doorbell)


def resources(engine: Engine, *workflows: Workflow) -> WorkflowResources:
    nothing: Any = None
    return WorkflowResources(nothing, engine, nothing, nothing, registry(*workflows))


def in_child(url: str, work_on: Callable[[Engine], None], dies_at: int) -> bool:
    """Runs it in a process of its own, which kills itself (-9) at its n-th transaction boundary. True if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            engine = make_engine(url, "child", pool_size=2)
            _die_at(engine, dies_at)
            work_on(engine)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _die_at(engine: Engine, number: int) -> None:
    """Boundaries: before each commit, and at the next statement after it."""
    seen = [0]
    pending = [False]

    def boundary() -> None:
        seen[0] += 1
        if seen[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_commit(_: Any) -> None:
        boundary()
        pending[0] = True

    def begin(_: Any) -> None:
        if pending[0]:
            pending[0] = False
            boundary()

    event.listen(engine, "commit", before_commit)
    event.listen(engine, "begin", begin)
