"""A change of many messages as a workflow: choose → carry out → finish. What was carried out stays if it is cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from archiver.access import users
from archiver.access.principal import Principal
from archiver.access.scope import MailScope, scope_of
from archiver.errors import UsageError
from archiver.exports.selection import Selection
from archiver.maintenance.snapshot import save_config
from archiver.marks import changes
from archiver.marks.changes import RIGHTS, ChangeAction, ChangeRequest, MailChange
from archiver.retention.expiry import find_expiring
from archiver.search.service import open_search
from archiver.workflows import service as workflows
from archiver.workflows.definition import Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun


@dataclass(frozen=True, slots=True)
class ChangeInput:
    selection: Selection
    user_id: UUID


@dataclass(frozen=True, slots=True)
class ChosenMessages:
    messages: int


def choose_messages(run: StepRun) -> ChosenMessages:
    """Decided once: what arrives later is not part of it."""
    given: ChangeInput = run.input
    selection, engine = given.selection, run.resources.engine
    with engine.connect() as connection:
        _, scope, change = _state(connection, run)
    if selection.everything:
        with engine.begin() as connection:
            changes.choose(connection, change.id, scope, None)
    elif selection.message_ids:
        with engine.begin() as connection:
            changes.choose(connection, change.id, scope, selection.message_ids)
    else:
        search = open_search(run.resources.settings, engine, find_expiring)
        ids = search.message_ids(selection.query or "", scope, zone=ZoneInfo(selection.zone))
        taken = 0
        while batch := list(islice(ids, changes.PORTION)):
            with engine.begin() as connection:
                changes.choose(connection, change.id, scope, batch)
            taken += len(batch)
            run.report(taken, 0)
    with engine.begin() as connection:
        changes.count_chosen(connection, change.id)
        return ChosenMessages(changes.progress(connection, change).chosen)


def carry_out(run: StepRun) -> Nothing:
    engine, archive = run.resources.engine, run.resources.archive
    total, done = run.result("choose").messages, 0
    while True:
        with engine.connect() as connection:
            principal, scope, change = _state(connection, run)  # in each portion: rights may change meanwhile
        if change.action == ChangeAction.DELETE:
            count = changes.delete_portion(engine, archive, principal, change, scope)
        else:
            with engine.begin() as connection:
                count = changes.carry_out_portion(connection, principal, change, scope)
        if not count:
            return Nothing()
        done += count
        run.report(done, total)


def finish(run: StepRun) -> Nothing:
    save_config(run.resources.engine, run.resources.archive)

    def complete(connection: Connection) -> None:
        principal, _, change = _state(connection, run)
        changes.finish(connection, principal, change)

    run.with_result(complete)
    return Nothing()


def give_up(run: StepRun) -> None:
    """What was carried out is stored; the rest stays as it was."""
    save_config(run.resources.engine, run.resources.archive)
    run.with_result(lambda connection: changes.fail(connection, run.run_id, "stopped before its end"))


def _state(connection: Connection, run: StepRun) -> tuple[Principal, MailScope, MailChange]:
    """The user with their rights of this moment."""
    principal = users.principal_of(connection, run.input.user_id)
    change = changes.load(connection, principal, run.run_id)
    principal.require(RIGHTS[ChangeAction(change.action)])
    return principal, scope_of(connection, principal), change


CHANGE = Workflow(
    "change",
    1,
    ChangeInput,
    (
        (Step("choose", choose_messages, ChosenMessages, rollback=give_up),),
        (Step("carry-out", carry_out, timeout_seconds=12 * 3600),),
        (Step("finish", finish),),
    ),
    open_runs_per_owner=3,
)


def start(connection: Connection, principal: Principal, request: ChangeRequest, selection: Selection) -> MailChange:
    """A worker carries it out."""
    selection.check()
    if request.action is ChangeAction.DELETE and selection.everything:
        raise UsageError("this would delete everything: search for what should be deleted first")
    change = changes.begin(connection, principal, request)
    workflows.start(connection, CHANGE, ChangeInput(selection, change.owner_id), principal, run_id=change.id)
    return change
