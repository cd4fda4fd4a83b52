"""Requesting, starting, following and cancelling clean-ups. For administrators."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import scope_of
from archiver.cleanups import statements as sql
from archiver.cleanups.rows import CleanupEntry, CleanupJob
from archiver.cleanups.workflow import CLEANUP, CLEANUP_CHECK, CleanupInput
from archiver.db.ids import uuid7
from archiver.db.sql import query_one
from archiver.db.states import CleanupState
from archiver.errors import Conflict, NotFound, UsageError
from archiver.sources.rows import Source
from archiver.workflows import service as workflows


def request(connection: Connection, principal: Principal, source: Source, *, local_doorbell: UUID | None = None) -> UUID:
    """Begins the dry run. Raises UsageError unless the source allows it, Conflict while another one is open."""
    principal.require(Right.ADMIN)
    days = source.settings.get("delete_after_days")
    if days is None:
        raise UsageError(f"{source.name} does not allow deleting mail: set delete_after_days first (docs/sources/deleting.md)")
    if (other := sql.find_open(connection, source.id)) is not None:
        raise Conflict(f"the clean-up {other} of this source is not finished yet: start, cancel or remove it first")
    cleanup_id, run_id = uuid7(), uuid7()
    needs_backup = bool(source.settings.get("delete_needs_backup", True))
    values = {"id": cleanup_id, "source_id": source.id, "user_id": principal.user_id, "requested_by": principal.name}
    sql.insert(connection, {**values, "after_days": days, "needs_backup": needs_backup, "run_id": run_id})
    given = CleanupInput(cleanup_id)
    workflows.start(connection, CLEANUP_CHECK, given, principal, run_id=run_id, local_doorbell=local_doorbell)
    audit.record(connection, principal, "cleanup.requested", "source", source.id, cleanup=str(cleanup_id), after_days=days)
    return cleanup_id


def start(connection: Connection, principal: Principal, cleanup_id: UUID, *, local_doorbell: UUID | None = None) -> UUID:
    """After the dry run, once. Returns the id of the workflow's run."""
    job = load(connection, principal, cleanup_id, lock=True)
    if job.state is not CleanupState.READY:
        raise Conflict(f"this clean-up is {job.state}: only one whose dry run is finished can be started, and only once")
    run_id = uuid7()
    sql.set_state(connection, cleanup_id, CleanupState.DELETING, run_id)
    given = CleanupInput(cleanup_id)
    workflows.start(connection, CLEANUP, given, principal, run_id=run_id, local_doorbell=local_doorbell)
    audit.record(connection, principal, "cleanup.started", "source", job.source_id, cleanup=str(cleanup_id), messages=job.ready)
    return run_id


def load(connection: Connection, principal: Principal, cleanup_id: UUID, *, lock: bool = False) -> CleanupJob:
    principal.require(Right.ADMIN)
    if lock:
        sql.find_open(connection, cleanup_id)  # (one change of clean-ups at a time)
    job = sql.load(connection, cleanup_id)
    if job is None:
        raise NotFound(f"there is no clean-up {cleanup_id}")
    return job


def list_cleanups(connection: Connection, principal: Principal, source_id: UUID | None = None) -> list[CleanupJob]:
    principal.require(Right.ADMIN)
    return sql.listed(connection, source_id)


def list_entries(
    connection: Connection, principal: Principal, cleanup_id: UUID, outcome: str | None = None, *, after: int = 0, limit: int
) -> list[CleanupEntry]:
    """The log: what became of each message."""
    load(connection, principal, cleanup_id)
    return sql.entries(connection, cleanup_id, scope_of(connection, principal), outcome, after, limit)


def run_of(connection: Connection, cleanup_id: UUID) -> UUID:
    return query_one(connection, "SELECT run_id FROM cleanups WHERE id = :id", UUID, id=cleanup_id)


def cancel(connection: Connection, principal: Principal, cleanup_id: UUID) -> None:
    """Stops one that is running, after the batch in hand. One that has deleted nothing is removed."""
    job = load(connection, principal, cleanup_id, lock=True)
    is_running = job.is_open and workflows.cancel(connection, run_of(connection, cleanup_id))
    if not is_running:
        if job.deleted:
            raise Conflict("this clean-up has deleted mail: its log stays")
        sql.remove(connection, cleanup_id)
    action = "cleanup.cancelled" if is_running else "cleanup.removed"
    audit.record(connection, principal, action, "source", job.source_id, cleanup=str(cleanup_id))
