"""Restores a backup: its packs into an empty archive, its dump into an empty database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Engine, text

from archiver.errors import ArchiverError, UsageError
from archiver.maintenance.adopt import Adopted, adopt
from archiver.maintenance.backup import MANIFEST, OLD_DUMP
from archiver.maintenance.dump import packs_in
from archiver.quantity import quantity
from archiver.store.archive import Archive
from archiver.store.errors import Damage
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, PackHead
from archiver.sync.ingest.archive_state import last_stamp, rise_above

_FILLED = text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")

Progress = Callable[[int, int], None]
"""(packs done, packs in total)"""


@dataclass(frozen=True, slots=True)
class Backup:
    """A completed backup, as described by its manifest."""

    folder: Path
    dump: Path
    packs: dict[UUID, int]
    """The packs in the manifest, with their sizes."""

    @classmethod
    def open(cls, folder: Path) -> Backup:
        try:
            manifest: dict[str, Any] = orjson.loads((folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise UsageError(f"{folder} has no completed backup: {MANIFEST} is missing") from None
        except orjson.JSONDecodeError as error:
            raise ArchiverError(f"{folder / MANIFEST} can't be read ({error}): use another copy of the backup") from error
        listed = {UUID(item["id"]): int(item["bytes"]) for item in manifest["packs"]}
        return cls(folder, folder / manifest.get("dump", OLD_DUMP), listed)

    def files(self) -> dict[UUID, Path]:
        """All packs in the folder, listed or not: one that is not in the manifest yet may hold newer mail."""
        found = {}
        for path in sorted((self.folder / "packs").glob("*.pack")):
            try:
                found[UUID(path.stem)] = path
            except ValueError:
                continue  # not ours
        return found

    def reason_to_rebuild(self, keys: PackKeys) -> str | None:
        """Why the dump can't be used: it refers to packs that the backup lacks, or it can't be read."""
        try:
            needed = packs_in(self.dump, keys) | self.packs
        except FileNotFoundError:
            return f"the backup has no {self.dump.name}"
        except Damage as damage:
            return str(damage)
        files = self.files()
        lacking = [pack for pack, size in needed.items() if pack not in files or files[pack].stat().st_size < size]
        if not lacking:
            return None
        more = ", …" if len(lacking) > 1 else ""
        return f"the backup lacks {quantity(len(lacking), 'pack')} of its dump ({min(lacking)}{more})"


def restore_packs(source: Backup, archive: Archive, progress: Progress | None = None) -> int:
    """Copies the packs of a backup into an archive that has no others. The database is loaded or rebuilt afterwards.

    An interrupted restore resumes. Raises WrongKey before anything is copied.
    """
    files = source.files()
    present = {pack_id: archive.backend.open(pack_id).size for pack_id in archive.backend.packs()}
    if any(pack_id not in files or files[pack_id].stat().st_size != size for pack_id, size in present.items()):
        raise UsageError("the archive already has packs that are not from this backup: restore into an empty data folder")
    _check_keys(files.values(), archive.keys)
    for number, (pack_id, path) in enumerate(files.items(), start=1):
        if pack_id not in present:
            archive.backend.put(path, pack_id)
        if progress:
            progress(number, len(files))
    return len(files)


def _check_keys(paths: Iterable[Path], keys: PackKeys) -> None:
    for path in paths:
        with path.open("rb") as file, suppress(Damage):
            head = PackHead.decode(file.read(PACK_HEADER_BYTES), path.name)
            keys.find(head.fingerprint, head.key_id)


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
