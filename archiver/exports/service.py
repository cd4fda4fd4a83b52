"""Exports that people request: written by the workers with the owner's rights at that time, stored for a week."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.access.scope import MailScope, scope_of
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.states import ExportState
from archiver.db.values import json_text
from archiver.errors import Conflict, NotFound, UsageError
from archiver.exports import statements as sql
from archiver.exports.collecting import KEPT_DAYS
from archiver.exports.converting import can_convert
from archiver.exports.package_files import PackageFolder
from archiver.exports.selection import PDF, ExportInput, PackageOptions, Selection
from archiver.exports.workflow import EXPORT
from archiver.store.capacity import check_disk
from archiver.workflows import service as workflows
from archiver.workflows.definition import TooManyRuns

REQUESTED = "export.requested"
"""The audit action of every export, from the page, the API and the command line."""
_COLUMNS = (
    "e.id, e.user_id, e.selection, e.format, e.state, e.messages, e.bytes, e.failed, e.error, e.created_at, e.finished_at,"
    " e.expires_at, e.files, p.step, coalesce(p.done, 0) AS done, coalesce(p.total, 0) AS total"
)
_FROM = """
    FROM exports e LEFT JOIN LATERAL (
        SELECT s.step, CAST(sum(s.progress_done) AS bigint) AS done, CAST(sum(s.progress_total) AS bigint) AS total
        FROM workflow_steps s
        WHERE s.run_id = e.id AND e.state IN ('queued', 'running') GROUP BY s.group_number, s.step
        ORDER BY s.group_number DESC, s.step LIMIT 1) AS p ON true"""


class TooManyExports(Conflict):
    code = "too_many_exports"


@dataclass(frozen=True, slots=True)
class ExportFile:
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class MailboxChoice:
    id: UUID
    address: str


@dataclass(frozen=True, slots=True)
class ExportJob:
    id: UUID
    user_id: UUID | None
    selection: dict[str, Any]
    format: str
    state: ExportState
    messages: int
    bytes: int
    failed: int
    """Number of messages that could not be read; the manifest names them."""
    error: str | None
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    files: tuple[ExportFile, ...]
    """The volumes to download. The last one contains the signed manifest."""
    step: str | None
    done: int
    total: int
    """How far the step is, while the export is written."""

    @property
    def is_open(self) -> bool:
        return self.state in (ExportState.QUEUED, ExportState.RUNNING)


def folder_of(settings: Settings, export_id: UUID) -> PackageFolder:
    return PackageFolder(settings.archiver_data / "exports" / str(export_id))


def request(
    connection: Connection,
    settings: Settings,
    principal: Principal,
    selection: Selection,
    options: PackageOptions = PackageOptions(),  # noqa: B008  (frozen)
    *,
    folder: Path | None = None,
    output: Path | None = None,
    local_doorbell: UUID | None = None,
) -> UUID:
    """Raises NoRoom, or TooManyExports while the user's other exports are unfinished or use up the allowance.

    A command names the `folder` of the volumes, or the `output`: a single file or Maildir.
    """
    selection.check()
    options.check()
    if options.format == PDF and not can_convert():
        raise UsageError("PDF files need a package that is not installed: install Archiver with the extra 'pdf' or 'all'")
    if output is None and folder is None:
        check_disk(settings)
    if principal.user_id is not None and sql.stored_bytes(connection, principal.user_id) >= settings.export_max_bytes:
        raise TooManyExports("your exports have reached EXPORT_MAX_BYTES: remove some")
    export_id = uuid7()
    chosen = {name: value for name, value in asdict(selection).items() if value and name != "zone"}
    connection.execute(
        text("INSERT INTO exports (id, user_id, selection, format) VALUES (:id, :user_id, CAST(:selection AS jsonb), :format)"),
        {
            "id": export_id,
            "user_id": principal.user_id,
            "selection": json_text(chosen, default=str),
            "format": options.format,
        },
    )
    if output is not None:
        folder = output.with_name(f".{output.name}.{export_id}")
    place = str(folder or folder_of(settings, export_id).path)
    given = ExportInput(selection, options, principal.user_id, principal.name, place, str(output) if output else None)
    try:
        workflows.start(connection, EXPORT, given, principal, run_id=export_id, local_doorbell=local_doorbell)
    except TooManyRuns as error:
        raise TooManyExports("5 of your exports are not finished yet: wait for them") from error
    audit.record(connection, principal, REQUESTED, "export", export_id, format=options.format, **_audited(chosen))
    return export_id


def _audited(chosen: dict[str, Any]) -> dict[str, Any]:
    found = dict(chosen)
    if "message_ids" in found:
        found["messages"] = [str(one) for one in found.pop("message_ids")]
    return found


def load(connection: Connection, principal: Principal, export_id: UUID) -> ExportJob:
    """Only the caller's own."""
    statement = text(f"SELECT {_COLUMNS} {_FROM} WHERE e.id = :id AND e.user_id IS NOT DISTINCT FROM :user_id")  # noqa: S608
    row = connection.execute(statement, {"id": export_id, "user_id": principal.user_id}).first()
    if row is None:
        raise NotFound(f"there is no export {export_id}")
    return _export(row)


def listed(connection: Connection, principal: Principal) -> list[ExportJob]:
    """The caller's own, newest first."""
    statement = text(f"SELECT {_COLUMNS} {_FROM} WHERE e.user_id = :user_id ORDER BY e.id DESC LIMIT 500")
    return [_export(row) for row in connection.execute(statement, {"user_id": principal.user_id})]


def mailbox_choices(connection: Connection, scope: MailScope, limit: int) -> list[MailboxChoice]:
    """By address, without counting what is in them."""
    visible = "true" if scope.mailboxes is None else "id = ANY(:scope_mailboxes)"
    statement = text(f"SELECT id, address FROM mailboxes WHERE {visible} ORDER BY lower(address), id LIMIT :limit")  # noqa: S608
    return [MailboxChoice(row.id, row.address) for row in connection.execute(statement, {**scope.values(), "limit": limit})]


def downloadable(
    engine: Engine, settings: Settings, principal: Principal, export_id: UUID, name: str | None = None
) -> tuple[ExportJob, Path]:
    """One volume; without a name, the only one. Permission is checked again, and it is audited before a byte is sent."""
    with engine.begin() as connection:
        item = load(connection, principal, export_id)
        if item.state is not ExportState.DONE:
            raise Conflict(f"this export is {item.state}")
        if name is None and len(item.files) > 1:
            raise Conflict(f"this export has {len(item.files)} volumes: download each by its name")
        chosen = next((one for one in item.files if name is None or one.name == name), None)
        path = folder_of(settings, item.id).path / chosen.name if chosen else None
        if path is None or not path.is_file():
            raise NotFound(f"this export has no file {name}" if path is None else "this export has expired")
        _check_scope(connection, principal, export_id)
        audit.record(connection, principal, "export.downloaded", "export", export_id, file=path.name)
    return item, path


def _check_scope(connection: Connection, principal: Principal, export_id: UUID) -> None:
    """Refuses an export with mail that its owner has lost access to since it was written."""
    written = connection.execute(text("SELECT scope FROM exports WHERE id = :id"), {"id": export_id}).scalar()
    now = scope_of(connection, principal)
    if now.mailboxes is None:
        return
    then = None if written is None else written["mailboxes"]
    if then is None or not {UUID(one) for one in then} <= now.mailboxes:
        raise Conflict("this export contains mail that you can no longer read: request a new export")


def remove(engine: Engine, settings: Settings, principal: Principal, export_id: UUID) -> None:
    """A finished one is deleted; one that is being written is cancelled, and what was written is removed."""
    with engine.begin() as connection:
        item = load(connection, principal, export_id)
        is_running = item.is_open and workflows.cancel(connection, export_id)
        if not is_running:
            connection.execute(text("DELETE FROM exports WHERE id = :id"), {"id": item.id})
        action = "export.cancelled" if is_running else "export.removed"
        audit.record(connection, principal, action, "export", export_id)
    if not is_running:
        folder_of(settings, item.id).remove()


def tidy(engine: Engine, settings: Settings) -> None:
    """Removes exports whose time is over, and files without a row: of removed owners, or of a process that died."""
    root = settings.archiver_data / "exports"
    there = list(root.iterdir()) if root.is_dir() else []  # listed before the rows: a file never exists before its row
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM exports WHERE expires_at < now()"))
        connection.execute(_FAIL_ENDED, {"days": KEPT_DAYS})
        known = {str(one) for one in connection.execute(text("SELECT id FROM exports")).scalars()}
    for path in there:
        if path.name not in known:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


_FAIL_ENDED = text("""
    UPDATE exports e SET state = 'failed', error = coalesce(r.error, 'cancelled'), finished_at = now(),
        expires_at = now() + make_interval(days => :days)
    FROM workflow_runs r WHERE r.id = e.id AND e.state IN ('queued', 'running') AND r.state IN ('failed', 'cancelled')""")


def _export(row: Any) -> ExportJob:
    files = tuple(ExportFile(one["name"], one["bytes"]) for one in row.files or ())
    return ExportJob(**{**row._asdict(), "state": ExportState(row.state), "files": files})
