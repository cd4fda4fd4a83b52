"""Exports that users request: written in the background with the owner's rights at that time, stored for a week."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit, users
from archiver.access.principal import Principal, rights_of
from archiver.access.scope import MailScope, scope_of
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import ExportState
from archiver.db.values import json_text
from archiver.errors import ArchiverError, Conflict, NotAllowed, NotFound
from archiver.logs import get_logger
from archiver.reading.export import REQUESTED, export
from archiver.search.service import open_search
from archiver.store.archive import Archive
from archiver.store.capacity import check_disk, explain_full_disk
from archiver.sync.scheduler import advisory_lock

log = get_logger(__name__)
_KEPT_DAYS = 7
_AT_ONCE = 5
_COLUMNS = "id, user_id, selection, format, state, messages, bytes, failed, error, created_at, finished_at, expires_at"
_LOAD = f"SELECT {_COLUMNS} FROM exports WHERE id = :id AND user_id = :user_id"  # noqa: S608
_LISTED = f"SELECT {_COLUMNS} FROM exports WHERE user_id = :user_id ORDER BY id DESC LIMIT 500"  # noqa: S608
_OPEN_IDS = "SELECT id FROM exports WHERE state IN ('queued', 'running') ORDER BY id"
_BEGIN = f"""
    UPDATE exports SET state = 'running' WHERE id = :id AND state IN ('queued', 'running') RETURNING {_COLUMNS}"""  # noqa: S608
_DELETE_EXPIRED = f"DELETE FROM exports WHERE expires_at < now() RETURNING {_COLUMNS}"  # noqa: S608
_OPEN = "SELECT count(*) FROM exports WHERE user_id = :user_id AND state IN ('queued', 'running')"
_STORED_BYTES = "SELECT coalesce(sum(bytes), 0)::bigint FROM exports WHERE user_id = :user_id AND state = 'done'"


class TooManyExports(Conflict):
    code = "too_many_exports"


class ExportTooLarge(ArchiverError):
    """The export would exceed what one user's exports may hold."""


@dataclass(slots=True)
class _Allowance:
    """Checked before each message is written: the owner's remaining allowance, and the free disk space."""

    settings: Settings
    left_bytes: int

    def spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            limit = f"EXPORT_MAX_BYTES ({self.settings.export_max_bytes:,})"
            raise ExportTooLarge(f"your exports would exceed {limit}: remove some, or export less at once")
        check_disk(self.settings, size_bytes)


@dataclass(frozen=True, slots=True)
class ExportJob:
    id: UUID
    user_id: UUID
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


def path_of(settings: Settings, item: ExportJob) -> Path:
    return settings.archiver_data / "exports" / f"{item.id}.{item.format}"


def request(
    connection: Connection, settings: Settings, principal: Principal, selection: dict[str, Any], kind: str
) -> ExportJob:
    """Raises NoRoom, or TooManyExports while the user's other exports are unfinished or use up the allowance."""
    check_disk(settings)
    open_ones = query_one(connection, _OPEN, int, user_id=principal.user_id)
    if open_ones >= _AT_ONCE:
        raise TooManyExports(f"{open_ones} of your exports are not finished yet: wait for them")
    if stored_bytes(connection, principal.user_id) >= settings.export_max_bytes:
        raise TooManyExports("your exports have reached EXPORT_MAX_BYTES: remove some")
    export_id = uuid7()
    connection.execute(
        text("INSERT INTO exports (id, user_id, selection, format) VALUES (:id, :user_id, CAST(:selection AS jsonb), :format)"),
        {"id": export_id, "user_id": principal.user_id, "selection": json_text(selection, default=str), "format": kind},
    )
    audit.record(connection, principal, REQUESTED, "export", export_id, format=kind, **selection)
    return load(connection, principal, export_id)


def stored_bytes(connection: Connection, user_id: UUID | None) -> int:
    """Total size of the mail in one user's exports."""
    return query_one(connection, _STORED_BYTES, int, user_id=user_id)


def load(connection: Connection, principal: Principal, export_id: UUID) -> ExportJob:
    """Only the caller's own."""
    found = query_optional(connection, _LOAD, ExportJob, id=export_id, user_id=principal.user_id)
    if found is None:
        raise NotFound(f"there is no export {export_id}")
    return found


def listed(connection: Connection, principal: Principal) -> list[ExportJob]:
    """The caller's own, newest first."""
    return query(connection, _LISTED, ExportJob, user_id=principal.user_id)


def finished_file(engine: Engine, settings: Settings, principal: Principal, export_id: UUID) -> tuple[ExportJob, Path]:
    """Audited before a byte is sent."""
    with engine.begin() as connection:
        item = load(connection, principal, export_id)
        path = path_of(settings, item)
        if item.state is not ExportState.DONE or not path.exists():
            raise Conflict(f"this export is {item.state if path.exists() or item.state is not ExportState.DONE else 'expired'}")
        _check_scope(connection, principal, export_id)
        audit.record(connection, principal, "export.downloaded", "export", export_id)
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


def remove(connection: Connection, settings: Settings, principal: Principal, export_id: UUID) -> None:
    item = load(connection, principal, export_id)
    connection.execute(text("DELETE FROM exports WHERE id = :id"), {"id": item.id})
    _unlink(path_of(settings, item))
    audit.record(connection, principal, "export.removed", "export", export_id)


def run_open(engine: Engine, archive: Archive, settings: Settings) -> int:
    """Writes the queued exports, and those that a dead process left. Returns how many were written."""
    with engine.connect() as connection:
        open_ids = query(connection, _OPEN_IDS, UUID)
    done = 0
    for export_id in open_ids:
        with advisory_lock(engine, f"export:{export_id}") as mine:
            if mine:
                _run(engine, archive, settings, export_id)
                done += 1
    _tidy(engine, settings)
    return done


def _run(engine: Engine, archive: Archive, settings: Settings, export_id: UUID) -> None:
    with engine.begin() as connection:
        item = query_optional(connection, _BEGIN, ExportJob, id=export_id)
    if item is None:
        return
    path = path_of(settings, item)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_drafts(path)
    try:
        with engine.connect() as connection:
            scope = scope_of(connection, _owner(connection, item))
            allowance = _Allowance(settings, settings.export_max_bytes - stored_bytes(connection, item.user_id))
        _note_scope(engine, item, scope)
        mailbox, query = item.selection.get("mailbox_id"), item.selection.get("query")
        ids = open_search(settings, engine).message_ids(query, scope) if query else None
        with explain_full_disk():
            done = export(engine, archive, path, item.format, UUID(mailbox) if mailbox else None, ids, scope, allowance.spend)
    except ArchiverError as error:
        _finish(engine, item, state="failed", error=str(error))
        return
    except Exception:
        log.exception("export_failed", export=str(export_id))
        _finish(engine, item, state="failed", error="internal error; see the server's log")
        return
    _finish(engine, item, state="done", messages=done.messages, size=done.bytes, failed=len(done.failed))


def _owner(connection: Connection, item: ExportJob) -> Principal:
    """With their current rights: what they have lost access to is not exported."""
    user = users.load(connection, item.user_id)
    if user.disabled_at is not None:
        raise NotAllowed("the user who requested this export is disabled")
    return Principal(user.email, user.role, rights_of(user.role), user.id, user.may_read_all)


def _note_scope(engine: Engine, item: ExportJob, scope: MailScope) -> None:
    mailbox = item.selection.get("mailbox_id")
    narrowed = scope.narrow_to(UUID(mailbox) if mailbox else None).mailboxes
    noted = {"mailboxes": None if narrowed is None else [str(one) for one in sorted(narrowed)]}
    with engine.begin() as connection:
        values = {"id": item.id, "scope": json_text(noted)}
        connection.execute(text("UPDATE exports SET scope = CAST(:scope AS jsonb) WHERE id = :id"), values)


def _finish(
    engine: Engine, item: ExportJob, *, state: str, error: str | None = None, messages: int = 0, size: int = 0, failed: int = 0
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE exports SET state = :state, error = :error, messages = :messages, bytes = :bytes, failed = :failed,"
                " finished_at = now(), expires_at = now() + make_interval(days => :days) WHERE id = :id"
            ),
            {
                "id": item.id,
                "state": state,
                "error": error,
                "messages": messages,
                "bytes": size,
                "failed": failed,
                "days": _KEPT_DAYS,
            },
        )


def _tidy(engine: Engine, settings: Settings) -> None:
    with engine.begin() as connection:
        expired = query(connection, _DELETE_EXPIRED, ExportJob)
    for item in expired:
        _unlink(path_of(settings, item))
    there = list(
        (settings.archiver_data / "exports").glob("*")
    )  # listed before the rows, because a file never exists before its row
    with engine.connect() as connection:
        known = set(map(str, query(connection, "SELECT id FROM exports", UUID)))
    for path in there:
        if path.name.lstrip(".")[:36] not in known:  # its owner was removed; an export can be written again
            path.unlink(missing_ok=True)


def _remove_drafts(path: Path) -> None:
    """Removes what a process left that died while writing this export."""
    for draft in path.parent.glob(f".{path.name}.*"):
        draft.unlink(missing_ok=True)


def _unlink(path: Path) -> None:
    for one in (path, path.with_name(path.name + ".manifest.jsonl")):
        one.unlink(missing_ok=True)
