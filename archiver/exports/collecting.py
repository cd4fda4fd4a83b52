"""The first steps of an export: freeze what belongs to it, and collect the messages in parallel parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import Connection

from archiver.access import users
from archiver.access.principal import LOCAL_OPERATOR, Principal, Right
from archiver.access.scope import MailScope, scope_of
from archiver.errors import NotAllowed
from archiver.exports import statements as sql
from archiver.exports.package_files import PackageFolder, whole_file
from archiver.exports.selection import ExportInput, Selection
from archiver.exports.statements import FrozenMessage
from archiver.logs import get_logger
from archiver.retention.expiry import find_expiring
from archiver.search.service import NotSearchable, open_search
from archiver.store.archive import Archive
from archiver.store.capacity import disk_check, explain_full_disk
from archiver.store.errors import StoreError
from archiver.sync.ingest.archive_state import archive_id
from archiver.workflows.definition import MAX_PARTS
from archiver.workflows.step_run import StepRun

KEPT_DAYS = 7
_PART_MESSAGES = 500
_ID_BATCH = 1_000

log = get_logger("exports")


class ExportTooLarge(NotAllowed):
    """The export would exceed what one user's exports may hold."""


@dataclass(frozen=True, slots=True)
class FrozenSet:
    messages: int
    bytes: int
    part_messages: int
    parts: int
    at: str
    archive_id: UUID
    not_searchable: dict[str, int]
    """Messages in the owner's scope that a search can't find yet, or not completely, by state."""
    not_searchable_reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class CollectedPart:
    messages: int
    missing: int


def owner_of(connection: Connection, given: ExportInput) -> Principal:
    """With their current rights: what they have lost access to is not exported."""
    if given.user_id is None:
        return LOCAL_OPERATOR
    user = users.load(connection, given.user_id)
    if user.disabled_at is not None:
        raise NotAllowed("the user who requested this export is disabled")
    principal = user.principal()
    principal.require(Right.EXPORT)
    return principal


def freeze(run: StepRun) -> FrozenSet:
    """Which messages, decided once: what arrives later is not part of it."""
    given: ExportInput = run.input
    engine = run.resources.engine
    given.files.create()
    check = disk_check_of(run)
    check(0)
    with engine.begin() as connection:
        scope = scope_of(connection, owner_of(connection, given)).narrow_to(given.selection.mailbox_id)
        sql.unfreeze(connection, run.run_id)
    _freeze_selection(run, given, scope)
    with engine.begin() as connection:
        total = sql.number_frozen(connection, run.run_id)
        _check_allowance(connection, run, given, total.bytes)
        archive = archive_id(connection)
    check(total.bytes)
    run.with_result(lambda connection: sql.set_running(connection, run.run_id, scope))
    per_part = max(_PART_MESSAGES, -(-total.messages // MAX_PARTS))
    found = _not_searchable(run, given, scope)
    return FrozenSet(
        messages=total.messages,
        bytes=total.bytes,
        part_messages=per_part,
        parts=-(-total.messages // per_part),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        archive_id=archive,
        not_searchable=dict(found.states),
        not_searchable_reasons=dict(found.reasons),
    )


def disk_check_of(run: StepRun) -> Callable[[int], None]:
    """Raises NoRoom before the archive's disk is full; an export to another disk may fill that one."""
    return disk_check(run.resources.settings, run.input.files.parts)


def _freeze_selection(run: StepRun, given: ExportInput, scope: MailScope) -> None:
    selection, engine = given.selection, run.resources.engine
    if selection.query is None and not selection.message_ids:
        where = "true" if scope.is_everything else scope.messages("m")
        values = {"folder": selection.folder} if selection.folder is not None else {}
        with engine.begin() as connection:
            sql.freeze(connection, run.run_id, scope, where, values)
        return
    for count, batch in enumerate(selected_ids(run, selection, scope)):
        run.report(count, 0)
        with engine.begin() as connection:
            sql.freeze(connection, run.run_id, scope, "m.id = ANY(:ids)", {"ids": batch})


def selected_ids(run: StepRun, selection: Selection, scope: MailScope) -> Iterator[list[UUID]]:
    """The results of a query, or the chosen messages, in batches."""
    if selection.query is not None:
        search = open_search(run.resources.settings, run.resources.engine, find_expiring)
        ids = search.message_ids(selection.query, scope, zone=ZoneInfo(selection.zone))
    else:
        ids = iter(selection.message_ids)
    while batch := list(islice(ids, _ID_BATCH)):
        yield batch


def _not_searchable(run: StepRun, given: ExportInput, scope: MailScope) -> NotSearchable:
    if given.selection.query is None:
        return NotSearchable()
    return open_search(run.resources.settings, run.resources.engine).not_searchable(scope)


def _check_allowance(connection: Connection, run: StepRun, given: ExportInput, size: int) -> None:
    limit = run.resources.settings.export_max_bytes
    if given.user_id is not None and sql.stored_bytes(connection, given.user_id) + size > limit:
        raise ExportTooLarge(f"your exports would exceed EXPORT_MAX_BYTES ({limit:,}): remove some, or export less at once")


def remove_everything(run: StepRun) -> None:
    """Rollback of the first step, and so the last one to run."""
    given: ExportInput = run.input
    given.files.remove()
    if given.output is not None:  # its folder is all ours
        shutil.rmtree(given.folder, ignore_errors=True)

    def forget(connection: Connection) -> None:
        sql.unfreeze(connection, run.run_id)
        sql.set_failed(connection, run.run_id, KEPT_DAYS)

    run.with_result(forget)


def collect(run: StepRun) -> CollectedPart:
    """The original bytes of one part in one file, and a line of details for each. What can't be read is named there."""
    given: ExportInput = run.input
    frozen: FrozenSet = run.result("freeze")
    files, first = given.files, run.part * frozen.part_messages
    with run.resources.engine.connect() as connection:
        scope = scope_of(connection, owner_of(connection, given)).narrow_to(given.selection.mailbox_id)
        rows, poison = sql.load_part(connection, run.run_id, scope, first, first + frozen.part_messages)
    disk_check_of(run)(sum(row.bytes or 0 for row in rows))
    missing = len(poison)
    with explain_full_disk(), whole_file(files.mail(run.part)) as mail, whole_file(files.details(run.part)) as details:
        for done, row in enumerate(rows):
            run.report(done, len(rows))
            entry = _collect_message(row, run.resources.archive, mail)
            missing += "error" in entry
            details.write(orjson.dumps(entry) + b"\n")
        for unreadable in poison:
            details.write(orjson.dumps({"id": str(unreadable.id), "error": unreadable.reason}) + b"\n")
    return CollectedPart(len(rows) + len(poison) - missing, missing)


def remove_part(run: StepRun) -> None:
    files: PackageFolder = run.input.files
    files.mail(run.part).unlink(missing_ok=True)
    files.details(run.part).unlink(missing_ok=True)


def _collect_message(row: FrozenMessage, archive: Archive, mail: IO[bytes]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": str(row.id)}
    if row.sha256 is None:
        return {**entry, "error": "it was deleted while the export was written"}
    entry["sha256"] = row.sha256
    if not row.copies:
        return {**entry, "error": "the person who asked for this export may no longer read it"}
    start = mail.tell()
    try:
        for piece in read_pieces(archive, row.sha256):
            mail.write(piece)
    except NotExported as error:
        mail.seek(start)
        mail.truncate()
        log.warning("message_not_exported", message=entry["id"], error=str(error))
        return {**entry, "error": f"it can't be read: {error}"}
    known = {"bytes": row.bytes, "date": row.date, "message_id": row.message_id, "from": row.sender, "subject": row.subject}
    return {**entry, **known, "copies": row.copies}


class NotExported(Exception):
    """This message can't be read; the others can."""


def read_pieces(archive: Archive, sha256: str) -> Iterator[bytes]:
    """Whatever goes wrong while it is read is this message's fault; a disk that can't hold the export stops it."""
    try:
        yield from archive.stream(bytes.fromhex(sha256))
    except StoreError as error:
        raise NotExported(str(error)) from error
    except Exception as error:
        log.exception("message_not_exported")
        said = error.strerror if isinstance(error, OSError) else None
        raise NotExported(said or type(error).__name__) from error
