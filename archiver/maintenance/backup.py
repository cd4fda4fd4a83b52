"""A second copy of the archive: packs, which never change and are copied once, and a sealed dump of the database. Keys are
never included.

The dump and the list of packs are from one snapshot, and no file of a replaced pack is removed while a backup runs. The new
manifest is the switch: until it is in place, the previous backup is the valid one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, text

from archiver.db.sql import query, query_one
from archiver.db.states import PackState
from archiver.errors import ArchiverError
from archiver.maintenance import outcomes
from archiver.maintenance.dump import write_dump
from archiver.maintenance.pack_removal import keep_files
from archiver.maintenance.rows import PACKS, PackRow
from archiver.quantity import quantity
from archiver.retention import tombstones
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.files import OsFiles, write_all
from archiver.store.pack import read_seal
from archiver.store.writer import pack_name

MANIFEST = "manifest.json"
OLD_DUMP = "database.dump"
"""The name in backups of older versions, whose manifest does not contain it."""
_DUMPS = "database*.dump"
_PIECE_BYTES = 1 << 20
_NO_TIMEOUT = text("SET LOCAL idle_in_transaction_session_timeout = 0")


@dataclass(frozen=True, slots=True)
class BackedUp:
    packs: int
    copied: int
    bytes_copied: int
    kept: int
    """Packs in the backup that this archive neither has nor has replaced. They are kept."""


Progress = Callable[[int, int], None]
"""(packs done, packs in total)"""


@dataclass(frozen=True, slots=True)
class _Copied:
    id: UUID
    bytes: int
    is_sealed: bool
    was_copied: bool


def backup(engine: Engine, archive: Archive, database_url: str, target: Path, progress: Progress | None = None) -> BackedUp:
    """Incremental: sealed packs that are already in `target` are not copied again. The outcome is recorded."""
    try:
        done = _backup(engine, archive, database_url, target, progress)
    except (ArchiverError, OSError) as error:
        with engine.begin() as connection:
            outcomes.record(connection, outcomes.BACKUP, succeeded=False, target=str(target), reason=str(error)[:500])
        raise
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.BACKUP, succeeded=True, target=str(target), packs=done.packs)
    return done


def _backup(engine: Engine, archive: Archive, database_url: str, target: Path, progress: Progress | None) -> BackedUp:
    folder = target / "packs"
    for path in (target, folder):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    tombstones.confirm(engine, archive)
    dump = f"database-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.dump"
    with keep_files(engine), _snapshot(engine) as (connection, snapshot):
        rows = {row.id: row for row in query(connection, PACKS, PackRow)}
        write_dump(database_url, target / dump, archive.keys, snapshot)
        copied = _copy_packs(archive, rows, folder, progress or (lambda done, total: None))
    _write_manifest(target, dump, copied)
    _drop_old_dumps(target, dump)
    retired = {pack_id for pack_id, row in rows.items() if row.state == PackState.RETIRED}
    _drop_replaced(folder, retired)
    kept = _count_unlisted(folder, {pack.id for pack in copied})
    new = [pack for pack in copied if pack.was_copied]
    return BackedUp(len(copied), len(new), sum(pack.bytes for pack in new), kept)


@contextmanager
def _snapshot(engine: Engine) -> Iterator[tuple[Connection, str]]:
    """A snapshot of the database that pg_dump can share."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(_NO_TIMEOUT)
        yield connection, query_one(connection, "SELECT pg_export_snapshot()", str)


def _copy_packs(archive: Archive, rows: dict[UUID, PackRow], folder: Path, progress: Progress) -> list[_Copied]:
    """All packs except replaced ones; also those that the database does not know, which a restore adopts."""
    live = {pack_id for pack_id, row in rows.items() if row.state != PackState.RETIRED}
    found = [pack_id for pack_id in archive.backend.packs() if pack_id in live or pack_id not in rows]
    lost = live - set(found)
    if lost:
        more = ", …" if len(lost) > 1 else ""
        raise ArchiverError(f"{quantity(len(lost), 'pack')} missing ({min(lost)}{more}): run `archiver verify`")
    copied = []
    for number, pack_id in enumerate(found, start=1):
        pack = archive.backend.open(pack_id)
        if pack_id in rows and pack.size < rows[pack_id].size_bytes:
            raise ArchiverError(f"{pack.name} is truncated: run `archiver verify`")
        copied.append(_copy_unless_present(pack, folder / pack.name))
        progress(number, len(found))
    return copied


def _copy_unless_present(pack: PackFile, path: Path) -> _Copied:
    """A sealed copy is never overwritten: sealed packs do not change, so a difference is damage in the archive."""
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
    packs = [{"id": pack.id, "bytes": pack.bytes, "sealed": pack.is_sealed} for pack in copied]
    content = {"made_at": datetime.now(UTC), "dump": dump, "packs": packs}
    _write_whole(target / MANIFEST, [orjson.dumps(content, option=orjson.OPT_INDENT_2)])


def _write_whole(path: Path, pieces: Iterator[bytes] | list[bytes]) -> None:
    """Readable by the owner only, and durable before it gets its name."""
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
    """Their content is in other packs, which have been copied by now."""
    for pack_id in retired:
        (folder / pack_name(pack_id)).unlink(missing_ok=True)


def _count_unlisted(folder: Path, listed: set[UUID]) -> int:
    names = {pack_name(pack_id) for pack_id in listed}
    return sum(1 for path in folder.glob("*.pack") if path.name not in names)
