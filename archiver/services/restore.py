"""The way back from a backup: its packs into an empty archive, its dump into an empty database."""

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
from archiver.services.adopt import Adopted, adopt
from archiver.services.archive_state import last_stamp, rise_above
from archiver.services.backup import MANIFEST, OLD_DUMP
from archiver.services.dump import packs_in
from archiver.store.archive import Archive
from archiver.store.errors import Damage
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, PackHead

_FILLED = text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")

Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup, as its manifest describes it."""

    folder: Path
    dump: Path
    packs: dict[UUID, int]
    """Those that the manifest lists, with their lengths."""

    @classmethod
    def open(cls, folder: Path) -> Backup:
        try:
            manifest: dict[str, Any] = orjson.loads((folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise UsageError(f"{folder} holds no finished backup: there is no {MANIFEST}") from None
        except orjson.JSONDecodeError as error:
            raise ArchiverError(f"{folder / MANIFEST} can't be read: {error}") from error
        listed = {UUID(item["id"]): int(item["bytes"]) for item in manifest["packs"]}
        return cls(folder, folder / manifest.get("dump", OLD_DUMP), listed)

    def files(self) -> dict[UUID, Path]:
        """All packs that are there, listed or not: one that the manifest does not know yet may hold newer mail."""
        found = {}
        for path in sorted((self.folder / "packs").glob("*.pack")):
            try:
                found[UUID(path.stem)] = path
            except ValueError:
                continue  # not ours
        return found

    def reason_to_rebuild(self, keys: PackKeys) -> str | None:
        """Why the dump is of no use: it names packs that the backup lacks, or it can't be read."""
        try:
            needed = packs_in(self.dump, keys) | self.packs
        except FileNotFoundError:
            return f"the backup has no {self.dump.name}"
        except Damage as damage:
            return str(damage)
        files = self.files()
        lacking = [one for one, size in needed.items() if one not in files or files[one].stat().st_size < size]
        return f"the backup lacks {len(lacking)} pack(s) of its dump, {min(lacking)} among them" if lacking else None


def restore_packs(source: Backup, archive: Archive, progress: Progress | None = None) -> int:
    """Puts the packs of a backup into an archive that has no others. The database is loaded, or rebuilt, after that.

    A restore that was interrupted goes on. Raises WrongKey before anything is copied.
    """
    files = source.files()
    there = {pack_id: archive.backend.open(pack_id).size for pack_id in archive.backend.packs()}
    if any(pack_id not in files or files[pack_id].stat().st_size != size for pack_id, size in there.items()):
        raise UsageError("the archive holds packs already that are not of this backup; restore wants one without any")
    _check_keys(files.values(), archive.keys)
    for number, (pack_id, path) in enumerate(files.items(), start=1):
        if pack_id not in there:
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
            raise UsageError("restore wants an empty database: there are messages or packs in this one")


def take_in(engine: Engine, archive: Archive) -> Adopted:
    """After the dump was loaded: what came into the packs after it. The archive that the backup is of may have gone on, so that
    the restored one numbers its journal in a generation of its own."""
    done = adopt(engine, archive, rest_seconds=0)
    with engine.begin() as connection:
        rise_above(connection, last_stamp(connection))
    return done
