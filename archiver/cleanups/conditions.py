"""What has to be true before a message may be deleted at its source. Each condition is checked in the dry run, and again right
before the deletion."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.cleanups.rows import CleanupCopy, CleanupJob
from archiver.config import Settings
from archiver.errors import UsageError
from archiver.maintenance.backups.manifest import load_manifest
from archiver.maintenance.backups.target import open_target
from archiver.retention.holds import find_held
from archiver.sources.rows import Source
from archiver.store.archive import Archive
from archiver.store.writer import pack_name


@dataclass(frozen=True, slots=True)
class SecondPlace:
    """The packs of the newest backup: id → how many bytes of it are there."""

    packs: Mapping[UUID, int]

    def has(self, copy: CleanupCopy) -> bool:
        ends = zip(copy.pack_ids, copy.ends, strict=True)
        return bool(copy.pack_ids) and all(self.packs.get(pack_id, -1) >= end for pack_id, end in ends)


def open_second_place(settings: Settings, job: CleanupJob) -> SecondPlace | None:
    """None if this clean-up does not ask for one. The files of the backup are looked at, not only its manifest."""
    if not job.needs_backup:
        return None
    if settings.backup_target is None:
        raise UsageError("this source deletes only mail that is in a backup, and no backups are made: set BACKUP_TARGET")
    target = open_target(settings, settings.backup_target)
    manifest = load_manifest(target)
    if manifest is None:
        raise UsageError(f"{target.name} has no completed backup: run `archiver backup` first")
    sizes = target.sizes("packs")
    return SecondPlace({pack.id: pack.bytes for pack in manifest.packs if sizes.get(pack_name(pack.id), -1) >= pack.bytes})


def check_source(source: Source | None, job: CleanupJob) -> Source:
    """The source still allows it. Raises UsageError."""
    if source is None or source.removed_at is not None:
        raise UsageError("the source was removed")
    days = source.settings.get("delete_after_days")
    if days is None or days > job.after_days or bool(source.settings.get("delete_needs_backup", True)) > job.needs_backup:
        raise UsageError(f"the settings of {source.name} no longer allow this clean-up: begin a new one")
    return source


def find_obstacles(
    connection: Connection, engine: Engine, archive: Archive, copies: Sequence[CleanupCopy], second: SecondPlace | None
) -> dict[int, str]:
    """Why copies may not be deleted, by their number. Until the end of this transaction, no hold is placed."""
    held = find_held(connection, engine, archive, [copy.unit for copy in copies if copy.is_there])
    found = {}
    for copy in copies:
        reason = _obstacle(copy, second)
        if copy.unit in held:
            reason = ", ".join(held[copy.unit])
        if reason:
            found[copy.number] = reason
    return found


def _obstacle(copy: CleanupCopy, second: SecondPlace | None) -> str:
    if not copy.is_there:
        return "it is no longer in the archive, or already deleted at the source"
    if not copy.is_old:
        return "it is not old enough"
    if copy.was_restored:
        return "it was restored to this mailbox"
    if not copy.is_verified:
        return "its pack was not verified since it was archived: run `archiver verify --full`"
    if second is not None and not second.has(copy):
        return "it is not in the newest backup: run `archiver backup`"
    return ""


def read_back(archive: Archive, copy: CleanupCopy) -> str:
    """The hash of what the archive returns now. Raises StoreError if it can't be read."""
    assert copy.sha256 is not None
    digest = hashlib.sha256()
    for piece in archive.stream(copy.sha256):
        digest.update(piece)
    return digest.hexdigest()
