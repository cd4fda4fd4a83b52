"""Imports of uploaded files: each under the name that its owner knows it by, in the import's own folder.

The files are stored until their import succeeds, or until they are discarded.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit, users
from archiver.access.principal import Principal
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.sql import query
from archiver.db.states import RunOutcome, UploadState, UserRole
from archiver.errors import Conflict, NotFound, UsageError
from archiver.logs import get_logger
from archiver.mail.attachments import clean_name
from archiver.secrets import Keyring
from archiver.sources import imports, uploads
from archiver.sources.imports import Import
from archiver.sources.uploads import Upload
from archiver.store.capacity import check_room

log = get_logger(__name__)
_FOLDER = re.compile(r"import-[0-9a-f-]{36}")
_BEGINNING_SECONDS = 3_600
"""A folder younger than this may belong to an import whose row is not committed yet."""
_MOST_FILES = 200

_OVER = """
    SELECT id, upload_folder FROM imports WHERE upload_folder IS NOT NULL AND upload_removed_at IS NULL
        AND (outcome = 'success' OR discarded_at IS NOT NULL) ORDER BY id"""
_KEPT = "SELECT upload_folder FROM imports WHERE upload_folder IS NOT NULL AND upload_removed_at IS NULL"


_UPLOADS = "SELECT id FROM uploads WHERE import_id = :id"


@dataclass(frozen=True, slots=True)
class EndedUploadImport:
    id: UUID
    upload_folder: str


def begin(
    engine: Engine, settings: Settings, keyring: Keyring, principal: Principal, upload_ids: Sequence[UUID], mailbox: str
) -> Import:
    """Into the caller's own mailbox, or any for an administrator. Repeating the request while the uploads are read returns the
    same import."""
    if not 0 < len(upload_ids) <= _MOST_FILES:
        raise UsageError(f"an import takes between 1 and {_MOST_FILES} files")
    mailbox = users.clean_email(mailbox)
    tidy(engine, settings)
    with engine.connect() as connection:
        found = [uploads.load(connection, principal, upload_id) for upload_id in dict.fromkeys(upload_ids)]
        if principal.role is not UserRole.ADMINISTRATOR and not users.owns_address(connection, principal, mailbox):
            raise NotFound(f"there is no mailbox {mailbox!r} of yours")
        under_way = _under_way(connection, found, mailbox)
        if under_way is not None:
            return under_way
        check_room(settings, connection, more_bytes=sum(upload.size_bytes for upload in found))
    for upload in found:
        if upload.state is not UploadState.COMPLETE:
            raise Conflict(f"the upload {upload.name} is not complete yet")
    return _begin(engine, settings, keyring, principal, found, mailbox)


def _begin(
    engine: Engine, settings: Settings, keyring: Keyring, principal: Principal, found: list[Upload], mailbox: str
) -> Import:
    import_id = uuid7()
    place = uploads.folder(settings).absolute() / f"import-{import_id}"
    try:
        paths = [_link(settings, place / str(number), upload) for number, upload in enumerate(found)]
        ids = [upload.id for upload in found]
        return imports.begin(
            engine, keyring, paths, mailbox, {}, principal, import_id=import_id, upload_folder=place.name, upload_ids=ids
        )
    except Conflict:
        shutil.rmtree(place, ignore_errors=True)  # only links; the uploads themselves stay
        raise


def _under_way(connection: Connection, found: list[Upload], mailbox: str) -> Import | None:
    taken = {upload.import_id for upload in found}
    import_id = next(iter(taken))
    if len(taken) > 1 or import_id is None:
        return None
    item = imports.load(connection, import_id)
    return item if item.outcome is None and item.mailbox == mailbox else None


def _link(settings: Settings, folder: Path, upload: Upload) -> Path:
    """Links the upload under its original name, after which archive folders are named. The name can't escape the folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / (clean_name(upload.name).lstrip(".") or "mail")
    path.hardlink_to(uploads.path_of(settings, upload.id))
    return path


def discard(engine: Engine, settings: Settings, principal: Principal, item: Import) -> None:
    """Removes the files of an import that did not succeed; a waiting import is cancelled."""
    with engine.begin() as connection:
        if item.outcome is None:
            imports.cancel(connection, principal, item)
        elif item.outcome is RunOutcome.SUCCESS or not item.keeps_upload:
            raise Conflict("this import has no stored files")
        connection.execute(text("UPDATE imports SET discarded_at = now() WHERE id = :id"), {"id": item.id})
        audit.record(connection, principal, "import.discarded", "import", item.id, mailbox=item.mailbox)
    remove_used(engine, settings)


def remove(engine: Engine, settings: Settings, principal: Principal, upload_id: UUID) -> None:
    """Removes an upload; if its import did not succeed, together with that. Raises Conflict while the upload is read."""
    with engine.begin() as connection:
        upload = uploads.load(connection, principal, upload_id)
        if upload.import_id is None:
            return uploads.remove(connection, settings, principal, upload_id)
        item = imports.load(connection, upload.import_id)
        count = len(query(connection, _UPLOADS, UUID, id=item.id))
    if item.outcome is None:
        raise Conflict(f"import {item.id} is reading this upload, which is removed when the import succeeds")
    if count > 1:
        raise Conflict(f"import {item.id} holds this upload and {count - 1} others: discard the import instead")
    return discard(engine, settings, principal, item)


def tidy(engine: Engine, settings: Settings) -> None:
    """Removes the files of ended imports, and folders that never became an import."""
    remove_used(engine, settings)
    with engine.connect() as connection:
        kept = set(query(connection, _KEPT, str))
    for place in uploads.folder(settings).absolute().glob("import-*"):
        if place.name not in kept and _holds_only_links(place):
            shutil.rmtree(place, ignore_errors=True)


def _holds_only_links(place: Path) -> bool:
    """True if every file in it has another link. A file without one is the only copy, and is not removed."""
    try:
        if time.time() - place.stat().st_mtime < _BEGINNING_SECONDS:
            return False
        return all(path.stat().st_nlink > 1 for path in place.rglob("*") if not path.is_dir())
    except OSError:
        return False


def remove_used(engine: Engine, settings: Settings) -> None:
    """Removes the uploads of imports that succeeded or were discarded: files first, because the rows record what is left."""
    if not uploads.folder(settings).is_dir():
        return
    with engine.connect() as connection:
        over = query(connection, _OVER, EndedUploadImport)
    for row in over:
        _remove_files(engine, settings, row.id, row.upload_folder)


def _remove_files(engine: Engine, settings: Settings, import_id: UUID, folder: str) -> None:
    with engine.connect() as connection:
        ids = query(connection, _UPLOADS, UUID, id=import_id)
    try:
        if _FOLDER.fullmatch(folder) and (uploads.folder(settings) / folder).is_dir():
            shutil.rmtree(uploads.folder(settings) / folder)
        for upload_id in ids:
            uploads.path_of(settings, upload_id).unlink(missing_ok=True)
    except OSError as error:
        log.warning("upload_not_removed", folder=folder, error=str(error))
        return
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM uploads WHERE id = ANY(:ids)"), {"ids": ids})
        connection.execute(text("UPDATE imports SET upload_removed_at = now() WHERE id = :id"), {"id": import_id})
