"""Workflows on a real Postgres: results, retries, rollback, cancelling, limits, versions, and death at every boundary."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.states import StepState, WorkflowState
from archiver.errors import ArchiverError, NotReady
from archiver.logs import set_up_logs
from archiver.workflows import service
from archiver.workflows.advance import advance, drive, give_up
from archiver.workflows.definition import BadWorkflow, Nothing, Step, TooManyRuns, Workflow
from archiver.workflows.step_run import StepRun
from tests.integration.workflows.sample import (
    IN_ORDER,
    PARTS,
    SAMPLE,
    SampleInput,
    SampleWorld,
    in_child,
    note,
    resources,
    step,
)


@pytest.fixture
def world(database_url: str, engine: Engine) -> SampleWorld:
    return SampleWorld(database_url, engine)


def test_results_accumulate_and_each_effect_happens_once(world: SampleWorld) -> None:
    run_id = world.start()
    world.finish()
    assert world.run(run_id).state is WorkflowState.DONE
    assert sorted(world.effects("done", run_id)) == sorted(IN_ORDER)
    with world.engine.connect() as connection:
        last = service.steps(connection, run_id)[-1]
    assert last.result == {"value": sum(1 + part + 1 for part in range(PARTS)) + (1 + 1) + 1}


def test_a_step_that_fails_once_is_tried_again(world: SampleWorld) -> None:
    run_id = world.start(SampleInput("many", fail_times=1))
    world.finish()
    assert world.run(run_id).state is WorkflowState.DONE
    assert sorted(world.effects("done", run_id)) == sorted(IN_ORDER)


def test_a_failure_rolls_back_what_was_done_in_reverse_order(world: SampleWorld) -> None:
    run_id = world.start(SampleInput("last"))
    world.finish()
    run = world.run(run_id)
    assert (run.state, run.error) == (WorkflowState.FAILED, "last: last fails on purpose")
    assert world.effects("undone", run_id) == IN_ORDER[::-1]


def test_a_failure_in_a_parallel_group_stops_the_others(world: SampleWorld) -> None:
    run_id = world.start(SampleInput("other"))
    world.finish()
    assert world.run(run_id).state is WorkflowState.FAILED
    assert ("last", 0) not in world.effects("done", run_id)
    undone = world.effects("undone", run_id)
    assert undone == [place for place in IN_ORDER[::-1] if place in undone]
    assert {("first", 0), ("other", 0)} <= set(undone)


def test_a_rollback_that_fails_is_reported_and_does_not_stop_the_others(database_url: str, engine: Engine) -> None:
    def refuse(run: StepRun) -> None:
        raise ArchiverError("the disk is gone")

    groups = (SAMPLE.groups[0], (step("many", parts=lambda run: PARTS, rollback=refuse), step("other")), SAMPLE.groups[2])
    world = SampleWorld(database_url, engine, replace(SAMPLE, groups=groups))
    run_id = world.start(SampleInput("last"))
    world.finish()
    assert world.run(run_id).state is WorkflowState.FAILED
    assert world.effects("undone", run_id) == [("last", 0), ("other", 0), ("first", 0)]
    with engine.connect() as connection:
        left = [one for one in service.steps(connection, run_id) if one.state is StepState.UNDO_FAILED]
    assert [one.error for one in left] == ["could not be rolled back: the disk is gone"] * PARTS


@pytest.mark.parametrize("fails_in", ["", "last"])
def test_killed_at_every_boundary(database_url: str, world: SampleWorld, fails_in: str) -> None:
    """The worker of a doorbell dies (-9) at its n-th boundary, for every n, and its job comes again."""
    deaths = 0
    for number in range(1, 200):
        run_id = world.start(SampleInput(fails_in))
        first, _ = world.doorbells()[0]

        def work_on(engine: Engine, run_id: UUID = run_id, doorbell: UUID = first) -> None:
            advance(resources(engine, world.workflow), run_id, doorbell, lambda: False, lambda _: False)

        died = in_child(database_url, work_on, number)
        deaths += died
        world.finish()
        run = world.run(run_id)
        done, undone = world.effects("done", run_id), world.effects("undone", run_id)
        assert len(done) == len(set(done))
        assert len(undone) == len(set(undone))
        if fails_in:
            assert run.state is WorkflowState.FAILED
            assert undone == IN_ORDER[::-1]
        else:
            assert run.state is WorkflowState.DONE
            assert sorted(done) == sorted(IN_ORDER)
        if not died:
            break
    assert deaths >= 15


def test_a_step_that_kills_its_process_is_given_up(database_url: str, world: SampleWorld) -> None:
    run_id = world.start()
    for _ in range(2):  # its attempts
        doorbell, _ = world.doorbells()[0]

        def work_on(engine: Engine, doorbell: UUID = doorbell) -> None:
            advance(resources(engine, world.workflow), run_id, doorbell, lambda: False, lambda _: False)

        assert in_child(database_url, work_on, 2), "dies when it has claimed the first step"
        with world.engine.begin() as connection:
            give_up(connection, run_id, doorbell, "job stalled more than allowable limit")
    world.finish()
    run = world.run(run_id)
    assert (run.state, run.error) == (WorkflowState.FAILED, "first: the process that ran it ended without a result, 2 times")


def test_cancelling_stops_a_running_step_and_rolls_back(database_url: str, engine: Engine) -> None:
    begun = threading.Event()

    def wait_for_cancel(run: StepRun) -> Nothing:
        begun.set()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            run.report(1, 2)
            time.sleep(0.01)
        raise AssertionError("was not cancelled")

    waiting = Step("wait", wait_for_cancel, rollback=lambda run: run.with_result(lambda c: note(c, "undone", run)))
    world = SampleWorld(database_url, engine, replace(SAMPLE, groups=(SAMPLE.groups[0], (waiting,))))
    run_id = world.start()
    thread = threading.Thread(target=world.finish)
    thread.start()
    assert begun.wait(60)
    with engine.begin() as connection:
        assert service.cancel(connection, run_id)
    thread.join(60)
    world.finish()
    assert world.run(run_id).state is WorkflowState.CANCELLED
    assert world.effects("undone", run_id) == [("wait", 0), ("first", 0)]
    with engine.begin() as connection:
        assert not service.cancel(connection, run_id), "it has ended"


def test_a_step_that_takes_too_long_fails(database_url: str, engine: Engine) -> None:
    def dawdle(run: StepRun) -> Nothing:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            run.report(0, 1)
            time.sleep(0.01)
        return Nothing()

    slow = Step("slow", dawdle, timeout_seconds=0.05, attempts=1)
    world = SampleWorld(database_url, engine, replace(SAMPLE, groups=((slow,),)))
    run_id = world.start()
    world.finish()
    assert world.run(run_id).error == "slow: slow took longer than 0 s"


def test_a_worker_that_lost_its_step_writes_nothing(database_url: str, engine: Engine) -> None:
    """While it sleeps, its job comes again elsewhere; only the second one's result counts."""
    world = SampleWorld(database_url, engine)
    taken: list[bool] = []

    def taken_over(run: StepRun) -> Nothing:
        run.with_result(lambda connection: note(connection, "done", run))
        if not taken:
            taken.append(True)
            advance(world.resources, run.run_id, run.claim.doorbell, lambda: False, lambda _: False)
        return Nothing()

    world = SampleWorld(database_url, engine, replace(SAMPLE, groups=((Step("once", taken_over),),)))
    run_id = world.start()
    world.finish()
    assert world.run(run_id).state is WorkflowState.DONE
    assert world.effects("done", run_id) == [("once", 0)]


@pytest.mark.parametrize(("version", "state"), [(1, WorkflowState.FAILED), (2, WorkflowState.DONE)])
def test_runs_of_the_release_before(database_url: str, engine: Engine, version: int, state: WorkflowState) -> None:
    """Refused with a sentence, and rolled back; or finished, if the new release says that it can."""
    before = SampleWorld(database_url, engine, replace(SAMPLE, version=version))
    run_id = before.start()
    doorbell, _ = before.doorbells()[0]
    slices = iter((False, True, True))
    advance(before.resources, run_id, doorbell, lambda: next(slices), lambda _: False)
    after = SampleWorld(database_url, engine, replace(SAMPLE, version=3, finishes=frozenset({2})))
    after.finish()
    run = after.run(run_id)
    assert run.state is state
    if state is WorkflowState.FAILED:
        assert run.error is not None
        assert "started by another release (sample, version 1), and this release runs version 3: start it again" in run.error
        assert after.effects("undone", run_id) == [("first", 0)]


def test_a_run_of_a_newer_release_waits_for_its_workers(database_url: str, engine: Engine) -> None:
    newer = SampleWorld(database_url, engine, replace(SAMPLE, version=9))
    run_id = newer.start()
    older = SampleWorld(database_url, engine)
    for doorbell, _ in older.doorbells():
        advance(older.resources, run_id, doorbell, lambda: False, lambda _: False)
    assert older.run(run_id).state is WorkflowState.QUEUED
    newer.finish()
    assert newer.run(run_id).state is WorkflowState.DONE


def test_a_key_is_one_run(world: SampleWorld) -> None:
    assert world.start(key="monthly") == world.start(key="monthly") != world.start(key="weekly")
    other = replace(LOCAL_OPERATOR, name="somebody-else")
    assert world.start(key="monthly") != world.start(key="monthly", principal=other)


def test_limits_per_owner(database_url: str, engine: Engine) -> None:
    world = SampleWorld(database_url, engine, replace(SAMPLE, open_runs_per_owner=2))
    world.start()
    world.start()
    with pytest.raises(TooManyRuns, match="2 runs of sample are not finished yet"):
        world.start()
    world.start(principal=replace(LOCAL_OPERATOR, name="somebody-else"))
    world.finish()
    world.start()


def test_waiting_sees_an_end_before_it_began_and_at_the_deadline(world: SampleWorld) -> None:
    run_id = world.start()
    with pytest.raises(NotReady, match="has not ended after 0 s: it goes on"):
        service.wait(world.engine, run_id, 0)
    world.finish()
    assert service.wait(world.engine, run_id, 0).state is WorkflowState.DONE


def test_a_run_without_a_job_gets_one(world: SampleWorld) -> None:
    run_id = world.start()
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox"))
        assert service.maintain(connection) == 0, "it is young: its job may be on its way"
        connection.execute(text("UPDATE workflow_runs SET created_at = now() - interval '2 minutes'"))
        assert service.maintain(connection) == 1
        assert service.maintain(connection) == 0
    world.finish()
    assert world.run(run_id).state is WorkflowState.DONE


def test_old_runs_are_removed(world: SampleWorld) -> None:
    old, young = world.start(), world.start()
    world.finish()
    with world.engine.begin() as connection:
        statement = text("UPDATE workflow_runs SET finished_at = now() - interval '91 days' WHERE id = :id")
        connection.execute(statement, {"id": old})
        service.maintain(connection)
        assert connection.execute(text("SELECT id FROM workflow_runs")).scalars().all() == [young]


def test_a_command_drives_a_run_itself(world: SampleWorld) -> None:
    doorbell = UUID(int=7)
    run_id = world.start(SampleInput("many", fail_times=1), local_doorbell=doorbell)
    drive(world.resources, run_id, doorbell)
    assert world.run(run_id).state is WorkflowState.DONE
    assert sorted(world.effects("done", run_id)) == sorted(IN_ORDER)


def test_progress_names_the_step(world: SampleWorld) -> None:
    run_id = world.start(SampleInput("last"))
    with world.engine.connect() as connection:
        assert [(one.state, one.step) for one in service.running(connection)] == [(WorkflowState.QUEUED, None)]
    world.finish()
    with world.engine.connect() as connection:
        assert service.running(connection) == []
        assert [one.id for one in service.recent(connection)] == [run_id]


def test_every_log_line_of_a_step_has_the_correlation_id(world: SampleWorld, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    set_up_logs("test", "info", None, to_terminal=False)
    try:
        world.start(principal=replace(LOCAL_OPERATOR, request_id="req-42"))
        world.finish()
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    ended = [line for line in lines if line["event"] == "step_ended"]
    assert len(ended) == len(IN_ORDER)
    assert {line["correlation_id"] for line in ended} == {"req-42"}


def test_many_runs_at_once(world: SampleWorld) -> None:
    """Four workers at the same time."""
    ids = [world.start() for _ in range(12)]
    threads = [threading.Thread(target=world.finish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    world.finish()
    assert {world.run(run_id).state for run_id in ids} == {WorkflowState.DONE}
    assert all(sorted(world.effects("done", run_id)) == sorted(IN_ORDER) for run_id in ids)


def bad_workflows() -> list[Any]:
    return [
        (("Bad Name",), "'Bad Name' is not a name"),
        (("twice", "twice"), "each step a name of its own"),
        ((), "each group needs a step"),
    ]


@pytest.mark.parametrize(("names", "said"), bad_workflows())
def test_definitions_are_checked(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadWorkflow, match=said):
        Workflow("sample", 1, SampleInput, tuple((step(name),) for name in names))


def test_an_unknown_step_is_a_clear_error() -> None:
    with pytest.raises(BadWorkflow, match="workflow 'sample' has no step 'pack': its steps are first, many, other, last"):
        SAMPLE.step("pack")


@pytest.mark.chaos
def test_a_thousand_runs_at_once(world: SampleWorld) -> None:
    """Four workers, every tenth run fails and is rolled back: each effect happens once."""
    ids = [world.start(SampleInput("last" if number % 10 == 0 else "")) for number in range(1_000)]
    threads = [threading.Thread(target=world.finish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.finish()
    for number, run_id in enumerate(ids):
        if number % 10 == 0:
            assert world.run(run_id).state is WorkflowState.FAILED
            assert world.effects("undone", run_id) == IN_ORDER[::-1]
        else:
            assert world.run(run_id).state is WorkflowState.DONE
            assert sorted(world.effects("done", run_id)) == sorted(IN_ORDER)
