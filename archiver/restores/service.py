"""Requesting, starting, following and cancelling restores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope, own_mailboxes, scope_of
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.sql import query
from archiver.db.states import RestoreState
from archiver.errors import Conflict, NotAllowed, NotFound, UsageError
from archiver.exports.selection import Selection
from archiver.exports.service import MailboxChoice
from archiver.restores import statements as sql
from archiver.restores.destination import RestoreDestination
from archiver.restores.rows import ReportedCopy, RestoreJob
from archiver.restores.workflow import RESTORE, RESTORE_CHECK, RestoreInput
from archiver.secrets import Keyring
from archiver.sources import rows
from archiver.sources.access import can_receive
from archiver.sources.destinations import check_hosts
from archiver.sources.kinds import kind_of, validate
from archiver.workflows import service as workflows
from archiver.workflows.definition import decode

_KEPT_DAYS = 90
_LISTED = 200
_CHOICES = """
    SELECT b.id, b.address FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id
    WHERE s.kind = ANY(:kinds) AND s.removed_at IS NULL AND b.gone_at IS NULL
    ORDER BY lower(b.address), b.id LIMIT :limit"""
_RECEIVERS = ("imap", "google", "gmail", "microsoft", "outlook")


def request(
    connection: Connection,
    settings: Settings,
    keyring: Keyring,
    principal: Principal,
    selection: Selection,
    destination: RestoreDestination,
    *,
    password: str | None = None,
    compares: bool = True,
    local_doorbell: UUID | None = None,
) -> UUID:
    """Begins with the dry run. Raises UsageError, NotAllowed, or TooManyRuns while others are unfinished."""
    principal.require(Right.RESTORE)
    selection.check()
    destination.check()
    name = _allowed_name(connection, settings, principal, destination, password)
    restore_id, run_id = uuid7(), uuid7()
    sealed = keyring.seal(orjson.dumps({"password": password}), restore_id.bytes) if destination.imap else None
    chosen = {key: value for key, value in asdict(selection).items() if value and key != "zone"}
    values = {
        "id": restore_id,
        "user_id": principal.user_id,
        "requested_by": principal.name,
        "selection": chosen,
        "destination": _public(destination),
        "destination_name": name,
        "credentials": sealed,
        "run_id": run_id,
    }
    sql.insert(connection, values)
    given = RestoreInput(restore_id, selection, destination, principal.user_id, compares)
    workflows.start(connection, RESTORE_CHECK, given, principal, run_id=run_id, local_doorbell=local_doorbell)
    audit.record(connection, principal, "restore.requested", "restore", restore_id, destination=name, **_audited(chosen))
    return restore_id


def _audited(chosen: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in chosen.items() if key != "message_ids"}
    ids = [str(one) for one in chosen.get("message_ids", ())]
    return {**found, "messages": ids} if ids else found


def _public(destination: RestoreDestination) -> dict[str, Any]:
    return {key: value for key, value in asdict(destination).items() if value}


def _allowed_name(
    connection: Connection, settings: Settings, principal: Principal, to: RestoreDestination, password: str | None
) -> str:
    """The destination's name. Users restore to their own mailboxes only; administrators anywhere."""
    if to.imap:
        principal.require(Right.ADMIN)
        if not password:
            raise UsageError("restoring to an IMAP account needs its password")
        checked, _ = validate(kind_of("imap"), to.imap, {"password": password})
        check_hosts(checked, settings.source_hosts, principal)
        return to.account_name
    if to.origins:
        return "origins"
    assert to.mailbox_id is not None
    box = sql.load_account(connection, to.mailbox_id)
    is_own = to.mailbox_id in own_mailboxes(connection, principal)
    if box is None or not (is_own or Right.ADMIN in principal.rights):
        raise NotAllowed("you can restore mail to your own mailboxes only")
    source = rows.load(connection, box.source_id)
    if source is None or source.removed_at is not None or not can_receive(source.kind):
        raise UsageError(f"mail can't be restored to {box.address}: its source has no mailboxes on a server")
    return box.address


def start(connection: Connection, principal: Principal, restore_id: UUID, *, local_doorbell: UUID | None = None) -> UUID:
    """After the dry run, or again after a failure. Returns the id of the workflow's run."""
    principal.require(Right.RESTORE)
    job = load(connection, principal, restore_id, lock=True)
    if not job.can_start:
        raise Conflict(f"this restore is {job.state}")
    given = _input(job)
    run_id = uuid7()
    sql.forget_outcomes(connection, restore_id)
    sql.set_state(connection, restore_id, RestoreState.RESTORING, run_id)
    workflows.start(connection, RESTORE, given, principal, run_id=run_id, local_doorbell=local_doorbell)
    audit.record(
        connection, principal, "restore.started", "restore", restore_id, destination=job.destination_name, messages=job.messages
    )
    return run_id


def _input(job: RestoreJob) -> RestoreInput:
    """From our own row: runs of workflows are removed after a while."""
    given = {"restore_id": job.id, "selection": job.selection, "destination": job.destination, "user_id": job.user_id}
    found: RestoreInput = decode(RestoreInput, given)
    return found


def load(connection: Connection, principal: Principal, restore_id: UUID, *, lock: bool = False) -> RestoreJob:
    """The caller's own; administrators see all."""
    if lock:
        query(connection, "SELECT id FROM restores WHERE id = :id FOR UPDATE", UUID, id=restore_id)
    job = sql.load(connection, restore_id)
    if job is None or not (Right.ADMIN in principal.rights or job.user_id == principal.user_id):
        raise NotFound(f"there is no restore {restore_id}")
    return job


def run_of(connection: Connection, restore_id: UUID) -> UUID:
    """The workflow's run: of the dry run, or of the restore itself."""
    return query(connection, "SELECT run_id FROM restores WHERE id = :id", UUID, id=restore_id)[0]


def list_restores(connection: Connection, principal: Principal) -> list[RestoreJob]:
    """Newest first."""
    return sql.listed(connection, None if Right.ADMIN in principal.rights else principal.user_id, _LISTED)


def report(
    connection: Connection, principal: Principal, restore_id: UUID, outcome: str | None = None, *, after: int = 0, limit: int
) -> list[ReportedCopy]:
    load(connection, principal, restore_id)
    return sql.report(connection, restore_id, scope_of(connection, principal), outcome, after, limit)


def cancel(connection: Connection, principal: Principal, restore_id: UUID) -> None:
    """What is in the mailboxes stays there. A restore that is not running is removed from the list."""
    job = load(connection, principal, restore_id, lock=True)
    is_running = job.is_open and workflows.cancel(connection, run_of(connection, restore_id))
    if not is_running:
        query(connection, "DELETE FROM restores WHERE id = :id RETURNING id", UUID, id=restore_id)
    action = "restore.cancelled" if is_running else "restore.removed"
    audit.record(connection, principal, action, "restore", restore_id, destination=job.destination_name)


def mailbox_choices(connection: Connection, principal: Principal, limit: int) -> list[MailboxChoice]:
    """The mailboxes that they may restore mail to."""
    found = query(connection, _CHOICES, MailboxChoice, kinds=list(_RECEIVERS), limit=limit)
    if Right.ADMIN in principal.rights:
        return found
    own = MailScope(own_mailboxes(connection, principal))
    return [choice for choice in found if own.sees(choice.id)]


def tidy(connection: Connection) -> None:
    sql.tidy(connection, _KEPT_DAYS)
