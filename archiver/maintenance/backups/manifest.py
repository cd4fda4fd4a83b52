"""What a backup consists of: the dump, the packs, and the figures of the archive at that moment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from archiver import __version__
from archiver.errors import ArchiverError
from archiver.maintenance.backups.archive_figures import ArchiveFigures
from archiver.maintenance.backups.target import BackupTarget

MANIFEST = "manifest.json"
"""Of the newest backup; the one that a restore uses by default."""
OLD_DUMP = "database.dump"
"""The name in backups of older versions, whose manifest does not contain it."""


class DamagedManifest(ArchiverError):
    """Another copy of the backup, or an older backup in the same place, may help."""


@dataclass(frozen=True, slots=True)
class BackupPack:
    id: UUID
    bytes: int
    is_sealed: bool
    sha256: str | None = None
    """None in manifests of older versions."""


@dataclass(frozen=True, slots=True)
class BackupManifest:
    made_at: datetime
    dump: str
    packs: tuple[BackupPack, ...]
    dump_sha256: str | None = None
    archive_id: UUID | None = None
    figures: ArchiveFigures | None = None
    """Of the database in the dump; None in manifests of older versions."""

    @property
    def name(self) -> str:
        """The backup's own name among those that are kept."""
        return self.dump.removeprefix("database-").removesuffix(".dump")

    def pack_ids(self) -> set[UUID]:
        return {pack.id for pack in self.packs}

    def total_bytes(self) -> int:
        return sum(pack.bytes for pack in self.packs)

    def encode(self) -> bytes:
        packs = [{"id": one.id, "bytes": one.bytes, "sealed": one.is_sealed, "sha256": one.sha256} for one in self.packs]
        content = {
            "made_at": self.made_at,
            "archiver_version": __version__,
            "archive_id": self.archive_id,
            "dump": self.dump,
            "dump_sha256": self.dump_sha256,
            "figures": asdict(self.figures) if self.figures else None,
            "packs": packs,
        }
        return orjson.dumps(content, option=orjson.OPT_INDENT_2)

    @classmethod
    def decode(cls, content: bytes, place: str) -> BackupManifest:
        try:
            values: dict[str, Any] = orjson.loads(content)
            packs = [
                BackupPack(UUID(one["id"]), int(one["bytes"]), bool(one.get("sealed")), one.get("sha256"))
                for one in values["packs"]
            ]
            archive_id, figures = values.get("archive_id"), values.get("figures")
            return cls(
                datetime.fromisoformat(values["made_at"]),
                values.get("dump", OLD_DUMP),
                tuple(packs),
                values.get("dump_sha256"),
                UUID(archive_id) if archive_id else None,
                ArchiveFigures(**figures) if figures else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedManifest(f"{place} can't be read ({error}): use another copy of the backup") from error


def manifest_name(backup: str) -> str:
    return f"manifest-{backup}.json"


def load_manifest(target: BackupTarget, name: str = MANIFEST) -> BackupManifest | None:
    """None if there is none of this name."""
    try:
        content = b"".join(target.read(name))
    except FileNotFoundError:
        return None
    return BackupManifest.decode(content, f"{target.name}/{name}")


def kept_backups(target: BackupTarget) -> list[BackupManifest]:
    """All that can be restored, newest first; without those whose manifest can't be read."""
    names = [name for name in target.sizes() if name.startswith("manifest-") and name.endswith(".json")]
    found: dict[str, BackupManifest] = {}
    for name in (MANIFEST, *sorted(names)):
        with suppress(DamagedManifest):
            if (one := load_manifest(target, name)) is not None:
                found[one.dump] = one
    return sorted(found.values(), key=lambda one: one.made_at, reverse=True)
