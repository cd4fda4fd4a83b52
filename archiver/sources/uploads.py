"""Resumable uploads: what has arrived stays after an interruption, and the next piece continues from there."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.config import Settings
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_one, query_optional, run
from archiver.db.states import UploadState
from archiver.errors import Conflict, NotFound, UsageError
from archiver.store.capacity import check_disk, explain_full_disk, reserve, upload_path

_KEPT_DAYS = 7
_ORPHAN_SECONDS = 3_600
"""A file younger than this may belong to an upload whose row is not committed yet."""
_PIECE_BYTES = 1 << 20
_MOST_RECEIVING = 100
"""Open uploads per user, because each reserves disk space."""
_COLUMNS = "id, name, size_bytes, sha256, state, import_id, created_at"

_LOAD = f"SELECT {_COLUMNS} FROM uploads WHERE id = :id AND user_id = :user_id"  # noqa: S608
_LISTED = f"SELECT {_COLUMNS} FROM uploads WHERE user_id = :user_id ORDER BY id DESC LIMIT 500"  # noqa: S608
_COUNT_RECEIVING = "SELECT count(*) FROM uploads WHERE state = 'receiving' AND user_id IS NOT DISTINCT FROM :user_id"
_IDLE = "SELECT id FROM uploads WHERE state = 'receiving' AND updated_at < now() - make_interval(days => :days)"
_LOCK = f"SELECT {_COLUMNS} FROM uploads WHERE id = ANY(:ids) ORDER BY id FOR UPDATE"  # noqa: S608
_IS_TAKEN = """
    SELECT i.id FROM uploads u JOIN imports i ON i.id = u.import_id
    WHERE u.id = ANY(:ids) AND (i.outcome IS NULL OR i.outcome = 'success' OR i.discarded_at IS NOT NULL)"""
_ASSIGN = "UPDATE uploads SET import_id = :import_id WHERE id = ANY(:ids)"
# An earlier import of the same files no longer owns them.
_SUPERSEDE = """
    UPDATE imports i SET discarded_at = now() WHERE i.id = ANY(:ids)
        AND NOT EXISTS (SELECT 1 FROM uploads u WHERE u.import_id = i.id)"""


class UploadTooLarge(UsageError):
    code = "too_large"


class TooManyUploads(Conflict):
    code = "too_many_uploads"


@dataclass(frozen=True, slots=True)
class Upload:
    id: UUID
    name: str
    size_bytes: int
    sha256: bytes | None
    state: UploadState
    import_id: UUID | None
    """The most recent import that reads it."""
    created_at: datetime


def folder(settings: Settings) -> Path:
    return settings.archiver_data / "uploads"


def path_of(settings: Settings, upload_id: UUID) -> Path:
    return upload_path(settings, upload_id)


def begin(
    connection: Connection, settings: Settings, principal: Principal, name: str, size_bytes: int, sha256: str | None
) -> Upload:
    """Reserves disk space for all of it. Raises NoRoom while the disk or the outbox is over its limit."""
    if size_bytes > settings.upload_max_bytes:
        raise UploadTooLarge(f"{size_bytes:,} bytes exceed UPLOAD_MAX_BYTES ({settings.upload_max_bytes:,})")
    try:
        digest = None if sha256 is None else bytes.fromhex(sha256)
    except ValueError:
        raise UsageError("sha256: expected 64 hexadecimal digits") from None
    reserve(settings, connection, size_bytes)
    if query_one(connection, _COUNT_RECEIVING, int, user_id=principal.user_id) >= _MOST_RECEIVING:
        raise TooManyUploads(f"{_MOST_RECEIVING} of your uploads are incomplete: finish or remove them first")
    upload_id = uuid7()
    folder(settings).mkdir(mode=0o700, parents=True, exist_ok=True)
    path_of(settings, upload_id).touch(mode=0o600)
    connection.execute(
        text("INSERT INTO uploads (id, user_id, name, size_bytes, sha256) VALUES (:id, :user_id, :name, :size, :sha256)"),
        {
            "id": upload_id,
            "user_id": principal.user_id,
            "name": name.replace("\0", "")[:255],
            "size": size_bytes,
            "sha256": digest,
        },
    )
    audit.record(connection, principal, "upload.begun", "upload", upload_id, name=name, bytes=size_bytes)
    return load(connection, principal, upload_id)


def load(connection: Connection, principal: Principal, upload_id: UUID) -> Upload:
    """Only the caller's own."""
    found = query_optional(connection, _LOAD, Upload, id=upload_id, user_id=principal.user_id)
    if found is None:
        raise NotFound(f"there is no upload {upload_id}")
    return found


def listed(connection: Connection, principal: Principal) -> list[Upload]:
    return query(connection, _LISTED, Upload, user_id=principal.user_id)


def is_there(settings: Settings, upload: Upload) -> bool:
    """False while it is being removed: the file is deleted first, then the row."""
    return path_of(settings, upload.id).exists()


def offset(settings: Settings, upload: Upload) -> int:
    try:
        return path_of(settings, upload.id).stat().st_size
    except FileNotFoundError:
        raise NotFound(f"there is no upload {upload.id}") from None


@contextmanager
def open_for_append(settings: Settings, upload: Upload, at: int) -> Iterator[IO[bytes]]:
    """Opens the file at its end for a single writer. Raises Conflict if `at` is not its end."""
    if upload.state is not UploadState.RECEIVING:
        raise Conflict("this upload is complete")
    offset(settings, upload)
    with path_of(settings, upload.id).open("r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict("another request is sending a piece of this upload") from None
        end = file.seek(0, os.SEEK_END)
        if at != end:
            raise Conflict(f"the upload continues at offset {end}, not {at}")
        yield file


def add_piece(settings: Settings, file: IO[bytes], upload: Upload, piece: bytes) -> None:
    """Rejects data beyond the announced size. Raises NoRoom; what arrived before stays."""
    if file.tell() + len(piece) > upload.size_bytes:
        raise UploadTooLarge(f"the upload exceeds the announced {upload.size_bytes:,} bytes")
    check_disk(settings, len(piece))
    view = memoryview(piece)
    with explain_full_disk():
        while view:
            view = view[file.write(view) :]


def renew_reservation(connection: Connection, settings: Settings, upload: Upload) -> None:
    """Before each piece: reserves disk space again for an upload that was idle for long. Raises NoRoom."""
    reserve(settings, connection, max(0, upload.size_bytes - offset(settings, upload)), but=upload.id)
    os.utime(path_of(settings, upload.id))


def complete(engine: Engine, settings: Settings, principal: Principal, upload_id: UUID) -> Upload:
    """Compares size and hash with the announced values, and syncs the file to disk."""
    with engine.connect() as connection:
        upload = load(connection, principal, upload_id)
    if upload.state is UploadState.COMPLETE:
        return upload
    with open_for_append(settings, upload, offset(settings, upload)) as file:
        if file.tell() != upload.size_bytes:
            raise Conflict(f"{file.tell():,} of {upload.size_bytes:,} bytes have arrived")
        os.fsync(file.fileno())
        digest = hashlib.sha256()
        file.seek(0)
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        if upload.sha256 is not None and not hmac.compare_digest(digest.digest(), upload.sha256):
            raise Conflict("the SHA-256 does not match the announced one: the file changed during the upload; upload it again")
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE uploads SET state = 'complete', sha256 = :sha256, updated_at = now() WHERE id = :id"),
                {"id": upload.id, "sha256": digest.digest()},
            )
            audit.record(
                connection, principal, "upload.completed", "upload", upload.id, name=upload.name, sha256=digest.hexdigest()
            )
            return load(connection, principal, upload_id)


def remove(connection: Connection, settings: Settings, principal: Principal, upload_id: UUID) -> None:
    """The file first, then the row: a row without a file can be removed again, but a file without a row has no owner."""
    upload = load(connection, principal, upload_id)
    path_of(settings, upload.id).unlink(missing_ok=True)
    connection.execute(text("DELETE FROM uploads WHERE id = :id"), {"id": upload.id})
    audit.record(connection, principal, "upload.removed", "upload", upload.id, name=upload.name)


def tidy(engine: Engine, settings: Settings) -> None:
    """Removes uploads that were idle for a week, and empty files without a row. A non-empty file without a row may be the only
    copy of something: it stays."""
    with engine.connect() as connection:
        begun = query(connection, _IDLE, UUID, days=_KEPT_DAYS)
        known = set(map(str, query(connection, "SELECT id FROM uploads", UUID)))
    given_up = [one for one in begun if _idle_seconds(path_of(settings, one)) > _KEPT_DAYS * 86_400]
    for upload_id in given_up:
        path_of(settings, upload_id).unlink(missing_ok=True)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM uploads WHERE id = ANY(:ids) AND state = 'receiving'"), {"ids": given_up})
    for path in folder(settings).glob("*.part"):
        with suppress(FileNotFoundError):
            if path.stem not in known and not path.stat().st_size and _idle_seconds(path) > _ORPHAN_SECONDS:
                path.unlink(missing_ok=True)


def _idle_seconds(path: Path) -> float:
    """Seconds since the last byte; infinite if the file is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def assign(connection: Connection, upload_ids: Sequence[UUID], import_id: UUID) -> None:
    """Assigns the uploads to an import. Raises Conflict if another one reads them, or has read them."""
    ids = list(upload_ids)
    locked = query(connection, _LOCK, Upload, ids=ids)
    if len(locked) < len(ids) or query(connection, _IS_TAKEN, UUID, ids=ids):
        raise Conflict("another import is already reading these files")
    run(connection, _ASSIGN, ids=ids, import_id=import_id)
    run(connection, _SUPERSEDE, ids=[one.import_id for one in locked if one.import_id is not None])
