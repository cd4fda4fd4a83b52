"""A second copy of the archive: packs, which never change and are copied once, and a dump of the database. Keys stay apart."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import orjson
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import Engine, text

from archiver.errors import ArchiverError, UsageError
from archiver.stack.postgres import installed_versions
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.files import OsFiles
from archiver.store.pack import PACK_HEADER_BYTES, PackHead, read_seal
from archiver.store.writer import pack_name

MANIFEST = "manifest.json"
DUMP = "database.dump"
_PIECE_BYTES = 1 << 20
_OPEN_PACKS = text("SELECT id, size_bytes FROM packs WHERE state <> 'retired'")


@dataclass(frozen=True, slots=True)
class BackedUp:
    packs: int
    copied: int
    bytes_copied: int


Progress = Callable[[int, int], None]
"""(packs done, packs in all)"""


def backup(engine: Engine, archive: Archive, database_url: str, target: Path, progress: Progress | None = None) -> BackedUp:
    """Incremental: what is in `target` already and sealed is not copied again.

    The dump comes first, so that every pack it refers to is copied after it.
    """
    packs_folder = target / "packs"
    packs_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _dump(database_url, target / f".{DUMP}.new")
    with engine.connect() as connection:
        known = {row.id: row.size_bytes for row in connection.execute(_OPEN_PACKS)}
    pack_ids = [pack_id for pack_id in archive.backend.packs() if pack_id in known]
    lost = known.keys() - set(pack_ids)
    if lost:
        raise ArchiverError(f"{len(lost)} pack(s) are missing, {sorted(lost)[0]} among them: run `archiver verify`")
    copied, size, listed = 0, 0, []
    for number, pack_id in enumerate(pack_ids, start=1):
        pack = archive.backend.open(pack_id)
        sealed = read_seal(pack.read_at, pack.size) is not None
        length = pack.size if sealed else known[pack_id]
        path = packs_folder / pack_name(pack_id)
        if not (sealed and path.exists() and path.stat().st_size == length):
            size += _copy(pack, length, path)
            copied += 1
        listed.append({"id": pack_id, "bytes": length, "sealed": sealed})
        if progress:
            progress(number, len(pack_ids))
    (target / f".{DUMP}.new").replace(target / DUMP)
    _drop_replaced(packs_folder, set(pack_ids))
    _write_whole(target / MANIFEST, orjson.dumps({"made_at": datetime.now(UTC), "packs": listed}, option=orjson.OPT_INDENT_2))
    return BackedUp(len(pack_ids), copied, size)


def restore(source: Path, data: Path, progress: Progress | None = None) -> int:
    """Puts the packs of a backup into a data folder that has none. The database is loaded, or rebuilt, after that."""
    if not (source / MANIFEST).exists():
        raise UsageError(f"{source} holds no finished backup: there is no {MANIFEST}")
    folder = data / "packs"
    if folder.exists() and any(folder.glob("*.pack")):
        raise UsageError(f"{folder} holds packs already; restore wants a data folder without any")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    listed = orjson.loads((source / MANIFEST).read_bytes())["packs"]
    for number, item in enumerate(listed, start=1):
        name = pack_name(UUID(item["id"]))
        path = source / "packs" / name
        if not path.exists() or path.stat().st_size < item["bytes"]:
            raise ArchiverError(f"the backup lacks {name}, or a part of it")
        with path.open("rb") as file:
            PackHead.decode(file.read(PACK_HEADER_BYTES), name)
        temporary = folder / f".{name}.new"
        shutil.copyfile(path, temporary)
        _sync(temporary)
        temporary.chmod(0o400 if item["sealed"] else 0o600)
        temporary.replace(folder / name)
        if progress:
            progress(number, len(listed))
    OsFiles().fsync_folder(folder)
    return len(listed)


def check_empty(engine: Engine) -> None:
    with engine.connect() as connection:
        if connection.execute(text("SELECT EXISTS (SELECT 1 FROM messages) OR EXISTS (SELECT 1 FROM packs)")).scalar_one():
            raise UsageError("restore wants an empty database: there are messages or packs in this one")


def load_dump(source: Path, database_url: str) -> None:
    """Fills an empty database from the backup's dump."""
    _run(
        database_url,
        "pg_restore",
        "--no-owner",
        "--no-privileges",
        "--clean",
        "--if-exists",
        "--single-transaction",
        str(source / DUMP),
    )


def _dump(database_url: str, path: Path) -> None:
    _run(database_url, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={path}")


def _run(database_url: str, program: str, *arguments: str) -> None:
    """The password goes by the environment: arguments are visible to all."""
    address = conninfo_to_dict(database_url)
    password = str(address.pop("password", "") or "")
    versions = installed_versions()
    command = [str(versions[max(versions)] / program), f"--dbname={make_conninfo('', **address)}", *arguments]
    environment = {**os.environ, "PGPASSWORD": password} if password else None
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise ArchiverError(f"{program} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")


def _copy(pack: PackFile, length: int, path: Path) -> int:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        for at in range(0, length, _PIECE_BYTES):
            piece = pack.read_at(at, min(_PIECE_BYTES, length - at))
            file.write(piece)
    _sync(temporary)
    temporary.replace(path)
    OsFiles().fsync_folder(path.parent)
    return length


def _drop_replaced(folder: Path, wanted: set[UUID]) -> None:
    """Packs that compaction has replaced: what they held is in the new ones, which are copied by now."""
    names = {pack_name(pack_id) for pack_id in wanted}
    for path in folder.glob("*.pack"):
        if path.name not in names:
            path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    _sync(temporary)
    temporary.replace(path)
    OsFiles().fsync_folder(path.parent)
