"""Refuses to start a worker whose folder has none of the archive's packs: another machine has them, or a disk is not mounted.

Packs in a local folder belong to one machine. A worker that wrote packs of its own elsewhere would split the archive, and
nothing would notice before someone opens a message whose pack is on the other machine.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine

from archiver.config import Settings
from archiver.db.sql import query
from archiver.errors import ConfigError
from archiver.store.archive import Archive

_KNOWN = "SELECT id FROM packs WHERE state <> 'retired' AND removed_at IS NULL"


def check_packs_are_here(settings: Settings, engine: Engine, archive: Archive) -> None:
    """Raises ConfigError. Packs in a bucket are wherever the bucket is."""
    if settings.storage_type != "local":
        return
    with engine.connect() as connection:
        known = set(query(connection, _KNOWN, UUID))
    if known and known.isdisjoint(archive.backend.packs()):
        raise ConfigError(
            f"the database knows {len(known)} packs, and none of them is in {settings.archiver_data / 'packs'}."
            " Is its disk mounted?"
            " If another machine has them: packs in a local folder can't be shared, use STORAGE_TYPE=s3"
            " (docs/operations/scale-out.md). If they are lost, restore a backup (docs/recovery.md)"
        )
