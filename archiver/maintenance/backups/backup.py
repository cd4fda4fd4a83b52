"""A second copy of the archive: packs, which never change and are copied once, and a sealed dump of the database. Keys are
never included.

The dump and the list of packs are from one snapshot, and no file of a replaced pack is removed while a backup runs. The new
manifest is the switch: until it is in place, the previous backup is the valid one. Older dumps stay, with their packs, until
`keep` newer ones exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.db.sql import query, query_one
from archiver.db.states import PackState
from archiver.errors import ArchiverError, Conflict, UsageError
from archiver.maintenance.backups.archive_figures import archive_figures
from archiver.maintenance.backups.dump import dump_pieces
from archiver.maintenance.backups.manifest import (
    MANIFEST,
    BackupManifest,
    BackupPack,
    kept_backups,
    manifest_name,
)
from archiver.maintenance.backups.pack_removal import keep_files
from archiver.maintenance.backups.target import PIECE_BYTES, BackupTarget, digest_of
from archiver.maintenance.checks import outcomes
from archiver.maintenance.erasure.register import REGISTER, register_content
from archiver.maintenance.rows import PACKS, PackRow
from archiver.quantity import quantity
from archiver.retention import erasures, tombstones
from archiver.store.archive import Archive
from archiver.store.backend import PackFile
from archiver.store.pack import read_seal
from archiver.store.writer import pack_name
from archiver.sync.ingest.archive_state import own_archive_id

KEPT_BACKUPS = 7
_NO_TIMEOUT = text("SET LOCAL idle_in_transaction_session_timeout = 0")
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('archiver:backup', 0))"


class BackupRunning(Conflict):
    code = "backup_running"


@dataclass(frozen=True, slots=True)
class BackedUp:
    name: str
    packs: int
    copied: int
    bytes_copied: int
    kept: int
    """Packs in the backup that this archive neither has nor has replaced. They are kept."""
    messages: int
    backups: int
    """How many backups can be restored from the target now."""


Progress = Callable[[int, int], None]
"""(packs done, packs in total); called for every piece that is written, so that it can raise to stop the backup"""


def backup(
    engine: Engine,
    archive: Archive,
    database_url: str,
    target: BackupTarget,
    progress: Progress | None = None,
    *,
    keep: int = KEPT_BACKUPS,
) -> BackedUp:
    """Incremental: sealed packs that are already in `target` are not copied again. The outcome is recorded.

    Raises BackupRunning if another one runs.
    """
    try:
        with _alone(engine):
            done = _Backup(engine, archive, target, progress or (lambda done, total: None)).run(database_url, keep)
    except BackupRunning:
        raise
    except (ArchiverError, OSError) as error:
        with engine.begin() as connection:
            outcomes.record(connection, outcomes.BACKUP, succeeded=False, target=target.name, reason=str(error)[:500])
        raise
    with engine.begin() as connection:
        details = {"packs": done.packs, "messages": done.messages, "bytes_copied": done.bytes_copied}
        outcomes.record(connection, outcomes.BACKUP, succeeded=True, target=target.name, backup=done.name, **details)
    return done


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    with engine.begin() as connection:
        connection.execute(_NO_TIMEOUT)
        if not query_one(connection, _ALONE, bool):
            raise BackupRunning("another backup of this archive is running: wait for its end")
        yield


@dataclass(frozen=True, slots=True)
class _Backup:
    engine: Engine
    archive: Archive
    target: BackupTarget
    progress: Progress

    def run(self, database_url: str, keep: int) -> BackedUp:
        previous = next(iter(kept_backups(self.target)), None)
        with self.engine.connect() as connection:
            archive_id = own_archive_id(connection)
        if previous and previous.archive_id not in (None, archive_id):
            raise UsageError(f"{self.target.name} has a backup of another archive ({previous.archive_id}): use another place")
        self.target.prepare()
        tombstones.confirm(self.engine, self.archive)
        made_at = datetime.now(UTC)
        dump = f"database-{made_at:%Y%m%dT%H%M%S%f}.dump"
        with keep_files(self.engine), _snapshot(self.engine) as (connection, snapshot):
            rows = {row.id: row for row in query(connection, PACKS, PackRow)}
            figures = archive_figures(connection)
            written = self.target.write(dump, self._watched(dump_pieces(database_url, self.archive.keys, snapshot), 0, 0))
            copied = self._copy_packs(rows, previous)
            self.target.write(REGISTER, [register_content(connection)])
            erased_at = erasures.last_finished(connection)
        packs = tuple(pack for pack, _ in copied)
        manifest = BackupManifest(made_at, dump, packs, written.sha256, archive_id, figures)
        for name in (manifest_name(manifest.name), MANIFEST):
            self.target.write(name, [manifest.encode()])
        retired = {pack_id for pack_id, row in rows.items() if row.state == PackState.RETIRED}
        unknown, kept = self._clean_up(manifest, retired, max(1, keep), erased_at)
        new = [pack for pack, was_copied in copied if was_copied]
        total = sum(pack.bytes for pack in new)
        return BackedUp(manifest.name, len(packs), len(new), total, unknown, figures.messages, kept)

    def _watched(self, pieces: Iterable[bytes], done: int, total: int) -> Iterator[bytes]:
        for piece in pieces:
            self.progress(done, total)
            yield piece

    def _copy_packs(self, rows: dict[UUID, PackRow], previous: BackupManifest | None) -> list[tuple[BackupPack, bool]]:
        """All packs except replaced ones; also those that the database does not know, which a restore adopts."""
        live = {pack_id for pack_id, row in rows.items() if row.state != PackState.RETIRED}
        found = [pack_id for pack_id in self.archive.backend.packs() if pack_id in live or pack_id not in rows]
        lost = live - set(found)
        if lost:
            more = ", …" if len(lost) > 1 else ""
            raise ArchiverError(f"{quantity(len(lost), 'pack')} missing ({min(lost)}{more}): run `archiver verify`")
        known = {pack.id: pack for pack in previous.packs} if previous else {}
        there = self.target.sizes("packs")
        copied = []
        for number, pack_id in enumerate(found):
            pack = self.archive.backend.open(pack_id)
            if pack_id in rows and pack.size < rows[pack_id].size_bytes:
                raise ArchiverError(f"{pack.name} is truncated: run `archiver verify`")
            present = self._present(pack.name, there.get(pack.name), known.get(pack_id))
            copied.append((present, False) if present else (self._copy(pack, number, len(found)), True))
            self.progress(number + 1, len(found))
        return copied

    def _present(self, name: str, size: int | None, known: BackupPack | None) -> BackupPack | None:
        """A sealed copy is never overwritten: sealed packs do not change, so a difference is damage in the archive."""
        if size is None:
            return None
        if known is not None and known.is_sealed and known.bytes == size and known.sha256:
            return known
        if read_seal(lambda offset, length: self.target.read_at(f"packs/{name}", offset, length), size) is None:
            return None
        written = digest_of(self.target.read(f"packs/{name}"), lambda: self.progress(0, 0))
        return BackupPack(UUID(PurePosixPath(name).stem), size, is_sealed=True, sha256=written.sha256)

    def _copy(self, pack: PackFile, number: int, total: int) -> BackupPack:
        is_sealed = read_seal(pack.read_at, pack.size) is not None
        pieces = (pack.read_at(at, min(PIECE_BYTES, pack.size - at)) for at in range(0, pack.size, PIECE_BYTES))
        written = self.target.write(f"packs/{pack.name}", self._watched(pieces, number, total))
        return BackupPack(pack.id, written.bytes, is_sealed, written.sha256)

    def _clean_up(self, manifest: BackupManifest, retired: set[UUID], keep: int, erased_at: datetime | None) -> tuple[int, int]:
        """Removes older backups, all of those from before an erasure, and replaced packs that no kept one needs: their content
        is in other packs, which have been copied by now. Returns the number of packs that no manifest lists, and of backups."""
        older = [one for one in kept_backups(self.target) if one.dump != manifest.dump]
        kept = [manifest, *(one for one in older if erased_at is None or one.made_at > erased_at)][:keep]
        names = {one.dump for one in kept} | {manifest_name(one.name) for one in kept}
        for name in self.target.sizes():
            is_ours = name.endswith(".dump") or (name.startswith("manifest-") and name.endswith(".json"))
            if is_ours and name not in names:
                self.target.remove(name)
        needed = {pack_id for one in kept for pack_id in one.pack_ids()}
        for pack_id in retired - needed:
            self.target.remove(f"packs/{pack_name(pack_id)}")
        listed = {pack_name(pack_id) for pack_id in needed}
        unknown = [name for name in self.target.sizes("packs") if name.endswith(".pack") and name not in listed]
        return len(unknown), len(kept)


@contextmanager
def _snapshot(engine: Engine) -> Iterator[tuple[Connection, str]]:
    """A snapshot of the database that pg_dump can share."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(_NO_TIMEOUT)
        yield connection, query_one(connection, "SELECT pg_export_snapshot()", str)
