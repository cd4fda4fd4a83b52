"""A clean-up as two workflows: the dry run (freeze → examine), and the deletion itself, which stops at the first surprise."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit, users
from archiver.access.principal import LOCAL_OPERATOR, Principal, Right
from archiver.cleanups import statements as sql
from archiver.cleanups.conditions import check_source, find_obstacles, open_second_place
from archiver.cleanups.deletion import MailboxCleanup
from archiver.cleanups.rows import CleanupJob
from archiver.db.states import CleanupState
from archiver.errors import NotAllowed, UsageError
from archiver.restores.statements import load_account
from archiver.sources import rows
from archiver.sources.rows import Source
from archiver.workflows.definition import Nothing, Step, Workflow
from archiver.workflows.step_run import StepRun
from connectors.base import MailboxRef

_PAGE = 500
_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class CleanupInput:
    cleanup_id: UUID


def freeze(run: StepRun) -> Nothing:
    """Which messages are old enough, decided once."""
    with run.resources.engine.begin() as connection:
        job, _, _ = _load(connection, run)
        sql.freeze(connection, job)
    return Nothing()


def examine(run: StepRun) -> Nothing:
    """The dry run: every condition that can be checked without the server. Nothing is changed anywhere."""
    resources = run.resources
    with resources.engine.connect() as connection:
        job, _, _ = _load(connection, run)
    second, after = open_second_place(resources.settings, job), 0
    while True:
        with resources.engine.begin() as connection:
            page = sql.unchecked(connection, job, after, _PAGE)
            obstacles = find_obstacles(connection, resources.engine, resources.archive, page, second)
            sql.record(connection, job.id, "kept", dict(obstacles))
            free = {copy.number: None for copy in page if copy.number not in obstacles}
            sql.record(connection, job.id, "ready", free)
        if len(page) < _PAGE:
            break
        after = page[-1].number
        run.report(after, job.messages)
    run.with_result(lambda connection: sql.set_state(connection, job.id, CleanupState.READY))
    return Nothing()


def delete(run: StepRun) -> Nothing:
    resources = run.resources
    with resources.engine.connect() as connection:
        job, source, principal = _load(connection, run)
        mailboxes = sql.mailboxes(connection, job.id)
    second = open_second_place(resources.settings, job)
    for mailbox_id in mailboxes:
        with resources.engine.connect() as connection:
            job, source, principal = _load(connection, run)  # the right or the setting may have been withdrawn
            box = load_account(connection, mailbox_id)
        if box is None:
            raise UsageError(f"the mailbox {mailbox_id} is no longer known")
        ref = MailboxRef(box.address, provider_id=box.provider_id)
        MailboxCleanup(run, job, source, mailbox_id, ref, second, principal).run_to_end()
    return Nothing()


def finish(run: StepRun) -> Nothing:
    def end(connection: Connection) -> None:
        job, _, principal = _load(connection, run)
        sql.set_state(connection, job.id, CleanupState.DONE)
        counts = {"deleted": job.deleted, "gone": job.gone, "kept": job.kept}
        audit.record(connection, principal, "cleanup.finished", "source", job.source_id, cleanup=str(job.id), **counts)

    run.with_result(end)
    return Nothing()


def mark_stopped(run: StepRun) -> None:
    run.with_result(lambda connection: sql.stop(connection, run.run_id))


def _load(connection: Connection, run: StepRun) -> tuple[CleanupJob, Source, Principal]:
    """Checked again at each step: the source's settings, and the rights of the person who asked."""
    job = sql.load(connection, run.input.cleanup_id)
    if job is None:
        raise UsageError("this clean-up was removed")
    return job, check_source(rows.load(connection, job.source_id), job), _principal(connection, job)


def _principal(connection: Connection, job: CleanupJob) -> Principal:
    if job.user_id is None:
        return LOCAL_OPERATOR
    user = users.load(connection, job.user_id)
    if user.disabled_at is not None:
        raise NotAllowed("the user who requested this clean-up is disabled")
    principal = user.principal()
    principal.require(Right.ADMIN)
    return principal


CLEANUP_CHECK = Workflow(
    "cleanup-check",
    1,
    CleanupInput,
    (
        (Step("freeze", freeze, rollback=mark_stopped),),
        (Step("examine", examine, timeout_seconds=_DAY_SECONDS),),
    ),
)
CLEANUP = Workflow(
    "cleanup",
    1,
    CleanupInput,
    (
        (Step("prepare", lambda run: Nothing(), rollback=mark_stopped),),
        (Step("delete", delete, timeout_seconds=7 * _DAY_SECONDS, attempts=5),),
        (Step("finish", finish),),
    ),
)
