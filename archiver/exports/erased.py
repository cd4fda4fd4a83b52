"""Removes exports that contain mail which was erased: a signed package can't be changed, so the whole of it goes."""

from __future__ import annotations

import zipfile
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import orjson
from sqlalchemy import Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.config import Settings
from archiver.db import sql
from archiver.db.ids import message_uuid
from archiver.exports.package_files import MANIFEST, PackageFolder
from archiver.exports.service import folder_of
from archiver.workflows import service as workflows

_DONE = "SELECT id FROM exports WHERE state = 'done'"
_OPEN = """
    SELECT e.id FROM exports e WHERE e.state IN ('queued', 'running') AND EXISTS (
        SELECT 1 FROM export_messages x WHERE x.export_id = e.id AND x.message_id = ANY(:ids))"""
_DELETE = "DELETE FROM exports WHERE id = :id"
_DOWNLOADED = (
    "SELECT at FROM audit_log WHERE action = 'export.downloaded' AND object_id = :id ORDER BY audit_log.id DESC LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class RemovedExport:
    id: UUID
    downloaded_at: datetime | None
    """The last time: whoever has the file still has the mail."""


def remove_containing(engine: Engine, settings: Settings, principal: Principal, hashes: Set[str]) -> list[RemovedExport]:
    """`hashes`: the SHA-256 of messages in hexadecimal. An export that is being written is cancelled. May be repeated."""
    ids = [message_uuid(bytes.fromhex(one)) for one in hashes]
    with engine.begin() as connection:
        for export_id in sql.query(connection, _OPEN, UUID, ids=ids):
            workflows.cancel(connection, export_id)
            audit.record(connection, principal, "export.cancelled", "export", export_id)
        finished = sql.query(connection, _DONE, UUID)
    return [
        _remove(engine, settings, principal, export_id)
        for export_id in finished
        if _contains(folder_of(settings, export_id), hashes)
    ]


def _remove(engine: Engine, settings: Settings, principal: Principal, export_id: UUID) -> RemovedExport:
    with engine.begin() as connection:
        downloaded_at = sql.query_optional(connection, _DOWNLOADED, datetime, id=str(export_id))
        sql.run(connection, _DELETE, id=export_id)
        audit.record(connection, principal, "export.removed", "export", export_id)
    folder_of(settings, export_id).remove()
    return RemovedExport(export_id, downloaded_at)


def _contains(files: PackageFolder, hashes: Set[str]) -> bool:
    """By the manifest in the last volume; a package without a readable one counts as if it did."""
    volumes = files.volumes()
    return bool(volumes) and _names_one(volumes[-1], hashes)


def _names_one(volume: Path, hashes: Set[str]) -> bool:
    try:
        with zipfile.ZipFile(volume) as opened, opened.open(MANIFEST) as lines:
            return any(orjson.loads(line).get("sha256") in hashes for line in lines)
    except (zipfile.BadZipFile, KeyError, OSError, orjson.JSONDecodeError):
        return True
