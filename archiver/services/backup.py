"""A second copy of the archive: packs, which never change and are copied once, and a sealed dump of the database. Keys stay
apart.

The dump and the list of packs are of one snapshot, and no file of a replaced pack is removed while a backup runs. The new
manifest is the switch: until it is in its place, the backup is the one before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, text

from archiver.errors import ArchiverError
from archiver.models.states import PackState
from archiver.services import tombstones
from archiver.services.dump import write_dump
from archiver.services.pack_removal import keep_files
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.files import OsFiles, write_all
from archiver.store.pack import read_seal
from archiver.store.writer import pack_name

MANIFEST = "manifest.json"
OLD_DUMP = "database.dump"
"""The name in backups of versions whose manifest does not tell it."""
_DUMPS = "database*.dump"
_PIECE_BYTES = 1 << 20
_PACKS = text("SELECT id, state, size_bytes FROM packs")
_NO_TIMEOUT = text("SET LOCAL idle_in_transaction_session_timeout = 0")


@dataclass(frozen=True, slots=True)
class BackedUp:
    packs: int
    copied: int
    bytes_copied: int
    kept: int
    """Packs in the backup that this archive neither has nor knows to be replaced. They stay."""


Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


@dataclass(frozen=True, slots=True)
class _Copied:
    id: UUID
    bytes: int
    is_sealed: bool
    was_copied: bool


def backup(engine: Engine, archive: Archive, database_url: str, target: Path, progress: Progress | None = None) -> BackedUp:
    """Incremental: what is in `target` already and sealed is not copied again."""
    folder = target / "packs"
    for path in (target, folder):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    tombstones.confirm(engine, archive)
    dump = f"database-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.dump"
    with keep_files(engine), _snapshot(engine) as (connection, snapshot):
        rows = {row.id: row for row in connection.execute(_PACKS)}
        write_dump(database_url, target / dump, archive.keys, snapshot)
        copied = _copy_packs(archive, rows, folder, progress or (lambda done, total: None))
    _write_manifest(target, dump, copied)
    _drop_old_dumps(target, dump)
    retired = {pack_id for pack_id, row in rows.items() if row.state == PackState.RETIRED}
    _drop_replaced(folder, retired)
    kept = _unlisted(folder, {one.id for one in copied})
    new = [one for one in copied if one.was_copied]
    return BackedUp(len(copied), len(new), sum(one.bytes for one in new), kept)


@contextmanager
def _snapshot(engine: Engine) -> Iterator[tuple[Connection, str]]:
    """A view of the database that others can share."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(_NO_TIMEOUT)
        yield connection, connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()


def _copy_packs(archive: Archive, rows: dict[UUID, Any], folder: Path, progress: Progress) -> list[_Copied]:
    """All packs but replaced ones; also those that the database does not know, which a restore adopts."""
    live = {pack_id for pack_id, row in rows.items() if row.state != PackState.RETIRED}
    found = [pack_id for pack_id in archive.backend.packs() if pack_id in live or pack_id not in rows]
    lost = live - set(found)
    if lost:
        raise ArchiverError(f"{len(lost)} pack(s) are missing, {sorted(lost)[0]} among them: run `archiver verify`")
    copied = []
    for number, pack_id in enumerate(found, start=1):
        pack = archive.backend.open(pack_id)
        if pack_id in rows and pack.size < rows[pack_id].size_bytes:
            raise ArchiverError(f"{pack.name} ends too early: run `archiver verify`")
        copied.append(_copy_unless_there(pack, folder / pack.name))
        progress(number, len(found))
    return copied


def _copy_unless_there(pack: PackFile, path: Path) -> _Copied:
    """A sealed copy is never written over: sealed packs do not change, so whatever differs is damage on this side."""
    if (size := _sealed_size(path)) is not None:
        path.chmod(0o600)
        return _Copied(pack.id, size, is_sealed=True, was_copied=False)
    is_sealed = read_seal(pack.read_at, pack.size) is not None
    _copy(pack, path)
    return _Copied(pack.id, path.stat().st_size, is_sealed=is_sealed, was_copied=True)


def _sealed_size(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        return size if read_seal(lambda offset, length: os.pread(descriptor, length, offset), size) else None
    finally:
        os.close(descriptor)


def _copy(pack: PackFile, path: Path) -> None:
    _write_whole(path, (pack.read_at(at, min(_PIECE_BYTES, pack.size - at)) for at in range(0, pack.size, _PIECE_BYTES)))


def _write_manifest(target: Path, dump: str, copied: list[_Copied]) -> None:
    packs = [{"id": one.id, "bytes": one.bytes, "sealed": one.is_sealed} for one in copied]
    content = {"made_at": datetime.now(UTC), "dump": dump, "packs": packs}
    _write_whole(target / MANIFEST, [orjson.dumps(content, option=orjson.OPT_INDENT_2)])


def _write_whole(path: Path, pieces: Iterator[bytes] | list[bytes]) -> None:
    """For the owner only, and on disk before it gets its name."""
    files, temporary = OsFiles(), path.with_name(f".{path.name}.new")
    descriptor = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for piece in pieces:
            write_all(files, descriptor, piece)
        files.fsync(descriptor)
    finally:
        os.close(descriptor)
    files.rename(temporary, path)
    files.fsync_folder(path.parent)


def _drop_old_dumps(target: Path, dump: str) -> None:
    for path in (*target.glob(_DUMPS), *target.glob(f".{OLD_DUMP}.new")):
        if path.name != dump:
            path.unlink()


def _drop_replaced(folder: Path, retired: set[UUID]) -> None:
    """Packs that the database knows to be replaced: what they held is in others, which are copied by now."""
    for pack_id in retired:
        (folder / pack_name(pack_id)).unlink(missing_ok=True)


def _unlisted(folder: Path, listed: set[UUID]) -> int:
    names = {pack_name(pack_id) for pack_id in listed}
    return sum(1 for path in folder.glob("*.pack") if path.name not in names)
