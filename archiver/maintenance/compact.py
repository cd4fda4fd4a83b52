"""Frees space: drops frames that nothing refers to, and merges small packs.

A frame that the database does not know is not dead: it is adopted first, and only a deletion, or another frame with the same
content, makes a frame dead.

A crash after any step is safe. The new pack is sealed and in place before one transaction points to it; the old ones are only
marked then, and their files are removed a day later, when no process can still be reading them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.config import Settings
from archiver.db import sql
from archiver.logs import get_logger
from archiver.maintenance.backups.pack_removal import remove_retired
from archiver.maintenance.checks import outcomes
from archiver.maintenance.recovery.adopt import Adopted, adopt
from archiver.maintenance.rows import FilledPack
from archiver.store.archive import Archive
from archiver.store.backend import SealedPack
from archiver.store.capacity import NoRoom, check_disk
from archiver.store.errors import Damage, PackLocked
from archiver.store.files import remove_older
from archiver.store.frames import FrameKind
from archiver.store.listing import list_pack
from archiver.store.merge import Merge, Moved
from archiver.store.pack import PACK_LIMIT_BYTES, FrameHeader, walk
from archiver.store.writer import pack_name
from archiver.sync.ingest import statements

_log = get_logger(__name__)
_CONTENT = frozenset({FrameKind.MESSAGE, FrameKind.PART, FrameKind.TEXT})
_SMALL_BYTES = 32 << 20
_DEAD_SHARE = 0.2
_SCRATCH = "compact-"
_STALE = timedelta(days=1)
_REST_SECONDS = 600
"""How long a pack must be idle before it is touched: its last batch may not be committed yet."""

_PACKS = """
    SELECT p.id, p.state, p.size_bytes, coalesce(sum(o.stored_bytes), 0)::bigint AS live_bytes FROM packs p
    LEFT JOIN objects o ON o.pack_id = p.id
    WHERE p.state IN ('open', 'sealed') AND (CAST(:ids AS uuid[]) IS NULL OR p.id = ANY(:ids)) GROUP BY p.id ORDER BY p.id"""
_LIVE = "SELECT position FROM objects WHERE pack_id = :id"
_LOCK = text("SELECT 1 FROM objects WHERE pack_id = ANY(:ids) ORDER BY sha256, kind FOR UPDATE")
_MOVE = """
    UPDATE objects o SET pack_id = :new_id, position = x.new_position, stored_bytes = x.length
    FROM json_to_recordset(:rows::json) AS x(old_id uuid, position bigint, new_position bigint, length bigint)
    WHERE o.pack_id = x.old_id AND o.position = x.position"""
_LEFT_BEHIND = "SELECT count(*) FROM objects WHERE pack_id = ANY(:ids)"
_RETIRE = """
    UPDATE packs SET state = 'retired', retired_at = now() WHERE id = ANY(:ids) AND state IN ('open', 'sealed') RETURNING id"""


@dataclass(frozen=True, slots=True)
class Compacted:
    packs_before: int = 0
    packs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    """Files of packs that were replaced more than a day ago."""
    adopted: int = 0
    """Messages that the database did not know, which were added first."""
    damage: tuple[str, ...] = ()
    """The damaged packs are left unchanged."""


class _Changed(Exception):
    """A pack got new objects, or was replaced by another compaction, while it was copied. It is left unchanged."""


class _Damaged(Exception):
    def __init__(self, pack: FilledPack, damage: Damage) -> None:
        super().__init__(str(damage))
        self.pack = pack


def compact(
    engine: Engine,
    archive: Archive,
    scratch: Path,
    *,
    rekey: bool = False,
    everything: bool = False,
    only: Collection[UUID] | None = None,
    keep_retired: timedelta = timedelta(days=1),
    rest_seconds: float = _REST_SECONDS,
    check_room: Callable[[int], None] = lambda more_bytes: None,
) -> Compacted:
    """`rekey`: also packs with other keys than the active one, which are re-encrypted. `everything`: every pack.
    `only`: these packs, however little is to be dropped from them, and no others.

    `check_room` is called before each new pack, because the old ones stay for a day; what it raises ends the compaction.
    """
    archive.backend.sweep(_STALE)
    remove_older(scratch.glob(f"{_SCRATCH}*"), _STALE)
    adopted = adopt(engine, archive, rest_seconds=rest_seconds)
    done = _with_adopted(Compacted(removed=remove_retired(engine, archive, keep_retired)), adopted)
    for group in _groups(_candidates(engine, archive, rekey, everything, only)):
        check_room(2 * sum(pack.live_bytes for pack in group))  # first in the scratch folder, then in the archive
        with ExitStack() as held:
            ids = [pack.id for pack in group if _hold(archive, pack.id, rest_seconds, held)]
            done = _with_adopted(done, adopt(engine, archive, pack_ids=ids, held=ids, rest_seconds=rest_seconds))
            work = _Work(engine, archive, scratch, rekey=rekey, everything=everything or only is not None)
            done = work.replace(_packs(engine, ids), done)
    return done


class CompactionStopped(Exception):
    """Between two packs: what was compacted stays so, and the rest waits for the next time."""


def compact_on_schedule(settings: Settings, engine: Engine, archive: Archive, should_stop: Callable[[], bool]) -> Compacted:
    """As `archiver compact` does, and records the outcome. Raises CompactionStopped if it has to stop, or the disk is full."""

    def check(more_bytes: int) -> None:
        if should_stop():
            raise CompactionStopped("the worker stops, or the time is over")
        check_disk(settings, more_bytes)

    try:
        done = compact(engine, archive, settings.archiver_data / "scratch", check_room=check)
    except NoRoom as error:
        _record(engine, succeeded=False, reason=str(error))
        raise CompactionStopped(str(error)) from error
    figures = {"bytes_before": done.bytes_before, "bytes_after": done.bytes_after, "removed": done.removed}
    _record(engine, succeeded=not done.damage, **figures, problems=list(done.damage[:20]))
    return done


def _record(engine: Engine, *, succeeded: bool, **details: Any) -> None:
    with engine.begin() as connection:
        outcomes.record(connection, outcomes.COMPACT, succeeded=succeeded, **details)


def _packs(engine: Engine, only: list[UUID] | None = None) -> list[FilledPack]:
    """The current rows of packs that may be replaced."""
    with engine.connect() as connection:
        return sql.query(connection, _PACKS, FilledPack, ids=only)


def _with_adopted(done: Compacted, adopted: Adopted) -> Compacted:
    damage = tuple(line for line in adopted.damage if line not in done.damage)
    return replace(done, adopted=done.adopted + adopted.messages, damage=(*done.damage, *damage))


def _candidates(
    engine: Engine, archive: Archive, rekey: bool, everything: bool, only: Collection[UUID] | None
) -> Iterator[FilledPack]:
    if only is not None:
        yield from _packs(engine, list(only))
        return
    for row in _packs(engine):
        if (
            everything
            or row.size_bytes < _SMALL_BYTES
            or _is_wasteful(engine, archive, row)
            or (rekey and _has_old_key(archive, row.id))
        ):
            yield row


def _is_wasteful(engine: Engine, archive: Archive, row: FilledPack) -> bool:
    """Whether enough of the pack is content that nothing refers to. The journal, which `objects` does not know, is no waste:
    a pack of small messages is a third journal, and would be written again by each compaction."""
    if row.live_bytes >= (1 - _DEAD_SHARE) * row.size_bytes:
        return False
    with engine.connect() as connection:
        live = set(sql.query(connection, _LIVE, int, id=row.id))
    try:
        listed = list_pack(archive.backend.open(row.id), archive.frames)
    except Damage:
        return True  # the attempt to copy it says where
    dead = sum(one.length for one in listed.entries if one.kind in _CONTENT and one.offset not in live)
    return bool(listed.damage) or dead > _DEAD_SHARE * row.size_bytes


def _has_old_key(archive: Archive, pack_id: UUID) -> bool:
    try:
        pack = archive.backend.open(pack_id)
    except Damage:
        return False
    first = next(walk(pack.read_at, pack.size, pack.name), None)
    return isinstance(first, FrameHeader) and first.header.fingerprint != archive.keys.active.fingerprint


def _groups(rows: Iterator[FilledPack]) -> Iterator[list[FilledPack]]:
    group: list[FilledPack] = []
    for row in rows:
        if group and sum(item.live_bytes for item in group) + row.live_bytes > PACK_LIMIT_BYTES:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _hold(archive: Archive, pack_id: UUID, rest_seconds: float, held: ExitStack) -> bool:
    release = archive.backend.hold(pack_id, rest_seconds)
    if release is None:
        return False
    held.callback(release)
    return True


@dataclass(frozen=True, slots=True)
class _Work:
    engine: Engine
    archive: Archive
    scratch: Path
    rekey: bool
    everything: bool

    def replace(self, packs: list[FilledPack], done: Compacted) -> Compacted:
        """One pack in place of these; damaged ones are left out."""
        while packs and (len(packs) > 1 or self.everything or self.rekey or self._is_wasteful(packs[0])):
            try:
                made = self._replace(packs)
            except _Damaged as found:
                self._leave(found)
                packs = [pack for pack in packs if pack is not found.pack]
                done = replace(done, damage=(*done.damage, str(found)))
                continue
            return done if made is None else _add_counts(done, packs, made)
        return done

    def _is_wasteful(self, pack: FilledPack) -> bool:
        return _is_wasteful(self.engine, self.archive, pack)

    def _replace(self, packs: list[FilledPack]) -> SealedPack | None:
        self.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=_SCRATCH) as folder:
            merge = Merge(self.archive, Path(folder), rekey=self.rekey)
            for pack in packs:
                self._add(merge, pack)
            made, moved = merge.finish()
            self.archive.backend.put(merge.path, made.id)
        try:
            with self.engine.begin() as connection:
                _repoint(connection, [pack.id for pack in packs], made, moved)
        except _Changed:
            with suppress(PackLocked):  # a copy of frames that stay: it is taken in by the next run
                self.archive.backend.remove(made.id)
            return None
        return made

    def _add(self, merge: Merge, pack: FilledPack) -> None:
        with self.engine.connect() as connection:
            live = set(sql.query(connection, _LIVE, int, id=pack.id))
        try:
            merge.add(self.archive.backend.open(pack.id), pack.size_bytes, _keep_frame(live))
        except Damage as damage:
            raise _Damaged(pack, damage) from damage

    def _leave(self, found: _Damaged) -> None:
        _log.warning("pack_damaged", pack=pack_name(found.pack.id), reason=str(found))
        with self.engine.begin() as connection:
            sql.run(connection, statements.LEAVE_PACKS, ids=[found.pack.id])


def _add_counts(done: Compacted, packs: list[FilledPack], made: SealedPack) -> Compacted:
    return replace(
        done,
        packs_before=done.packs_before + len(packs),
        packs_after=done.packs_after + 1,
        bytes_before=done.bytes_before + sum(pack.size_bytes for pack in packs),
        bytes_after=done.bytes_after + made.size,
    )


def _keep_frame(live: set[int]) -> Callable[[FrameHeader], bool]:
    """The journal and the dictionaries are never dropped; content only when nothing refers to it."""
    return lambda found: found.header.kind not in _CONTENT or found.offset in live


def _repoint(connection: Connection, pack_ids: list[UUID], made: SealedPack, moved: list[Moved]) -> None:
    sql.run(connection, statements.SEAL_PACK, **statements.sealed_row(made))
    connection.execute(_LOCK, {"ids": pack_ids})
    rows = [
        {"old_id": item.old.pack_id, "position": item.old.offset, "new_position": item.offset, "length": item.length}
        for item in moved
    ]
    if rows:
        sql.run(connection, _MOVE, rows=sql.rows(rows), new_id=made.id)
    if sql.query_one(connection, _LEFT_BEHIND, int, ids=pack_ids):
        raise _Changed
    if len(sql.query(connection, _RETIRE, UUID, ids=pack_ids)) < len(pack_ids):
        raise _Changed
