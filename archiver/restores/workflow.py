"""A restore as two workflows: the dry run (freeze → compare), and the restore itself (deliver → finish).

Both may be repeated at any point: what has an outcome is not sent again, and what is in its mailbox is recognised there.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit, users
from archiver.access.principal import LOCAL_OPERATOR, Principal, Right
from archiver.access.scope import MailScope, own_mailboxes, scope_of
from archiver.db.states import RestoreState
from archiver.errors import NotAllowed
from archiver.exports.collecting import selected_ids
from archiver.exports.selection import Selection
from archiver.restores import statements as sql
from archiver.restores.delivery import AccountDelivery
from archiver.restores.destination import RestoreDestination
from archiver.workflows.definition import MAX_PARTS, Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun

_DAY_SECONDS = 24 * 3600
_ATTEMPTS = 10
"""Of workers that die: a server that refuses ends the run at once."""


@dataclass(frozen=True, slots=True)
class RestoreInput:
    restore_id: UUID
    selection: Selection
    destination: RestoreDestination
    user_id: UUID | None
    """Whose mail it may contain; None for the local operator."""
    compares: bool = True
    """False for a restore without a dry run."""


@dataclass(frozen=True, slots=True)
class FrozenRestore:
    messages: int
    accounts: tuple[UUID, ...]


def owner_of(connection: Connection, given: RestoreInput) -> Principal:
    """With their current rights."""
    if given.user_id is None:
        return LOCAL_OPERATOR
    user = users.load(connection, given.user_id)
    if user.disabled_at is not None:
        raise NotAllowed("the user who requested this restore is disabled")
    principal = user.principal()
    principal.require(Right.RESTORE)
    return principal


def restorable(connection: Connection, principal: Principal) -> MailScope:
    """The mail that they may restore: administrators what they may read, users what is in their own mailboxes."""
    scope = scope_of(connection, principal)
    if Right.ADMIN in principal.rights:
        return scope
    own = own_mailboxes(connection, principal)
    return MailScope(own if scope.mailboxes is None else own & scope.mailboxes)


def freeze(run: StepRun) -> FrozenRestore:
    """Which messages, decided once: what arrives later is not part of it."""
    given: RestoreInput = run.input
    engine, selection = run.resources.engine, given.selection
    with engine.begin() as connection:
        scope = restorable(connection, owner_of(connection, given)).narrow_to(selection.mailbox_id)
        sql.unfreeze(connection, given.restore_id)
    to = given.destination
    account = None if to.origins else to.mailbox_id or given.restore_id
    if selection.query is None and not selection.message_ids:
        values = {"folder": selection.folder} if selection.folder is not None else {}
        with engine.begin() as connection:
            sql.freeze(connection, given.restore_id, account, scope, "true", values)
    else:
        for count, ids in enumerate(selected_ids(run, selection, scope)):
            run.report(count, 0)
            with engine.begin() as connection:
                sql.freeze(connection, given.restore_id, account, scope, "m.id = ANY(:ids)", {"ids": ids})
    with engine.connect() as connection:
        total = sql.total(connection, given.restore_id)
        accounts = tuple(sql.accounts(connection, given.restore_id))
    run.with_result(lambda connection: sql.set_total(connection, given.restore_id, total))
    return FrozenRestore(total.messages, accounts)


def compare(run: StepRun) -> Nothing:
    """The dry run: nothing is changed in any mailbox."""
    return _deliver(run, dry_run=True)


def finish_check(run: StepRun) -> Nothing:
    given: RestoreInput = run.input
    run.with_result(lambda connection: sql.set_state(connection, given.restore_id, RestoreState.READY))
    return Nothing()


def deliver(run: StepRun) -> Nothing:
    return _deliver(run, dry_run=False)


def _deliver(run: StepRun, *, dry_run: bool) -> Nothing:
    given: RestoreInput = run.input
    with run.resources.engine.connect() as connection:
        accounts = sql.accounts(connection, given.restore_id)
        scope = restorable(connection, owner_of(connection, given))
    for account_id in accounts[run.part :: MAX_PARTS]:
        AccountDelivery(run, given.restore_id, account_id, given.destination, scope, dry_run).run_to_end()
    return Nothing()


def finish(run: StepRun) -> Nothing:
    given: RestoreInput = run.input

    def end(connection: Connection) -> None:
        sql.set_state(connection, given.restore_id, RestoreState.DONE)
        sql.forget_credentials(connection, given.restore_id)
        job = sql.load(connection, given.restore_id)
        assert job is not None
        principal = owner_of(connection, given)
        counts = {"restored": job.restored, "present": job.present, "refused": job.refused}
        audit.record(connection, principal, "restore.finished", "restore", job.id, destination=job.destination_name, **counts)

    run.with_result(end)
    return Nothing()


def mark_ended(run: StepRun) -> None:
    """What is in the mailboxes stays there: starting again continues behind it."""
    run.with_result(lambda connection: sql.end_failed(connection, run.run_id))


def _account_parts(run: StepRun) -> int:
    given: RestoreInput = run.input
    with run.resources.engine.connect() as connection:
        return min(len(sql.accounts(connection, given.restore_id)), MAX_PARTS)


def _compared_parts(run: StepRun) -> int:
    return _account_parts(run) if run.input.compares else 0


RESTORE_CHECK = Workflow(
    "restore-check",
    1,
    RestoreInput,
    (
        (Step("freeze", freeze, FrozenRestore, rollback=mark_ended),),
        (Step("compare", compare, parts=_compared_parts, timeout_seconds=_DAY_SECONDS, attempts=_ATTEMPTS),),
        (Step("ready", finish_check),),
    ),
    open_runs_per_owner=3,
)
RESTORE = Workflow(
    "restore",
    1,
    RestoreInput,
    (
        (Step("prepare", lambda run: Nothing(), rollback=mark_ended),),
        (Step("deliver", deliver, parts=_account_parts, timeout_seconds=7 * _DAY_SECONDS, attempts=_ATTEMPTS),),
        (Step("finish", finish),),
    ),
    open_runs_per_owner=3,
)
