"""Restores a backup: its packs into an empty archive, its dump into an empty database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.errors import UsageError
from archiver.maintenance.backups.dump import packs_in
from archiver.maintenance.backups.manifest import MANIFEST, BackupManifest, BackupPack, kept_backups, load_manifest
from archiver.maintenance.backups.target import BackupTarget
from archiver.maintenance.recovery.adopt import Adopted, adopt
from archiver.quantity import quantity
from archiver.store.archive import Archive
from archiver.store.errors import Damage
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, PackHead
from archiver.store.writer import pack_name
from archiver.sync.ingest.archive_state import last_stamp, rise_above

_FILLED = text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")

Progress = Callable[[int, int], None]
"""(packs done, packs in total)"""


@dataclass(frozen=True, slots=True)
class Backup:
    """A completed backup, as described by its manifest."""

    target: BackupTarget
    manifest: BackupManifest
    scratch: Path
    """For files that have to be fetched first."""
    _others: frozenset[UUID] = frozenset()
    """Packs that only other backups in this target list."""

    @classmethod
    def open(cls, target: BackupTarget, scratch: Path, name: str | None = None) -> Backup:
        """The newest one, or the one of this name."""
        kept = kept_backups(target)
        if name is None:
            chosen = load_manifest(target)
            if chosen is None:
                raise UsageError(f"{target.name} has no completed backup: {MANIFEST} is missing")
        else:
            chosen = next((one for one in kept if one.name == name), None)
        if chosen is None:
            raise UsageError(f"{target.name} has no backup {name!r}: it has {', '.join(one.name for one in kept)}")
        others = {pack_id for one in kept for pack_id in one.pack_ids()} - chosen.pack_ids()
        return cls(target, chosen, scratch, frozenset(others))

    def files(self) -> dict[UUID, int]:
        """The packs and their sizes, also those in no manifest: a pack that is not in the manifest yet may hold newer mail."""
        found = {}
        for name, size in sorted(self.target.sizes("packs").items()):
            try:
                pack_id = UUID(PurePosixPath(name).stem)
            except ValueError:
                continue  # not ours
            if name.endswith(".pack") and pack_id not in self._others:
                found[pack_id] = size
        return found

    def dump_file(self) -> AbstractContextManager[Path]:
        return self.target.as_file(self.manifest.dump, self.scratch)

    def pack_file(self, pack_id: UUID) -> AbstractContextManager[Path]:
        return self.target.as_file(_place(pack_id), self.scratch)

    def reason_to_rebuild(self, keys: PackKeys) -> str | None:
        """Why the dump can't be used: it refers to packs that the backup lacks, or it can't be read."""
        try:
            with self.dump_file() as dump:
                needed = packs_in(dump, keys) | {pack.id: pack.bytes for pack in self.manifest.packs}
        except FileNotFoundError:
            return f"the backup has no {self.manifest.dump}"
        except Damage as damage:
            return str(damage)
        files = self.files()
        lacking = [pack for pack, size in needed.items() if files.get(pack, -1) < size]
        if not lacking:
            return None
        more = ", …" if len(lacking) > 1 else ""
        return f"the backup lacks {quantity(len(lacking), 'pack')} of its dump ({min(lacking)}{more})"


@dataclass(frozen=True, slots=True)
class RestoredPacks:
    packs: int
    damage: list[str]
    """Packs that are not what was backed up. They are restored nevertheless: most of their frames may be intact."""


def restore_packs(source: Backup, archive: Archive, progress: Progress | None = None) -> RestoredPacks:
    """Copies the packs of a backup into an archive that has no others. The database is loaded or rebuilt afterwards.

    An interrupted restore resumes. Raises WrongKey before anything is copied.
    """
    files = source.files()
    present = {pack_id: archive.backend.open(pack_id).size for pack_id in archive.backend.packs()}
    if any(files.get(pack_id) != size for pack_id, size in present.items()):
        raise UsageError("the archive already has packs that are not from this backup: restore into an empty data folder")
    _check_keys(source, archive.keys)
    listed = {pack.id: pack for pack in source.manifest.packs}
    damage = []
    for number, pack_id in enumerate(files, start=1):
        if pack_id not in present:
            with source.pack_file(pack_id) as path:
                if is_changed(path, listed.get(pack_id)):
                    damage.append(f"{pack_name(pack_id)} in the backup is not what was backed up: its checksum is wrong")
                archive.backend.put(path, pack_id)
        if progress:
            progress(number, len(files))
    return RestoredPacks(len(files), damage)


def is_changed(path: Path, listed: BackupPack | None) -> bool:
    """A pack that was still open may have grown since: then it belongs to a later backup."""
    if listed is None or listed.sha256 is None:
        return False
    size = path.stat().st_size
    if size > listed.bytes and not listed.is_sealed:
        return False
    with path.open("rb") as file:
        return size != listed.bytes or hashlib.file_digest(file, "sha256").hexdigest() != listed.sha256


def _check_keys(source: Backup, keys: PackKeys) -> None:
    for pack_id in source.files():
        with suppress(Damage):
            head = PackHead.decode(source.target.read_at(_place(pack_id), 0, PACK_HEADER_BYTES), pack_name(pack_id))
            keys.find(head.fingerprint, head.key_id)


def _place(pack_id: UUID) -> str:
    return f"packs/{pack_name(pack_id)}"


def check_empty(engine: Engine) -> None:
    with engine.connect() as connection:
        if connection.execute(_FILLED).scalar_one():
            raise UsageError(
                "restore needs an empty database, and this one has messages or packs: use another database or data folder"
            )


def adopt_newer(engine: Engine, archive: Archive) -> Adopted:
    """After the dump is loaded: adds what was written to the packs after it. The original archive may still be in use, so the
    restored one numbers its journal in a new generation."""
    done = adopt(engine, archive, rest_seconds=0)
    with engine.begin() as connection:
        rise_above(connection, last_stamp(connection))
    return done
