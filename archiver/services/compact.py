"""Gives space back: frames that nothing refers to are left out, and small packs become one.

Each step can be the last one before a crash. The new pack is sealed and in its place before one transaction points to it;
the old ones are only marked then, and their files go a day later, when nobody can be reading them any more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text

from archiver.services import batch_sql
from archiver.services.pack_removal import remove_retired
from archiver.store.archive import Archive
from archiver.store.backend import SealedPack
from archiver.store.errors import Damage
from archiver.store.frames import Kind
from archiver.store.merge import Merge, Moved
from archiver.store.pack import PACK_LIMIT_BYTES, Found, walk

_log = structlog.get_logger(__name__)
_CONTENT = frozenset({Kind.MESSAGE, Kind.PART, Kind.TEXT})
_SMALL_BYTES = 32 << 20
_DEAD_SHARE = 0.2
_REST_SECONDS = 600
"""A pack rests for so long before it is touched: a batch that is in it may still be on its way into the database."""

_PACKS = text("""
    SELECT p.id, p.state, p.size_bytes, coalesce(sum(o.stored_bytes), 0) AS live_bytes FROM packs p
    LEFT JOIN objects o ON o.pack_id = p.id WHERE p.state <> 'retired' GROUP BY p.id ORDER BY p.id""")
_LIVE = text("SELECT position, sha256, kind FROM objects WHERE pack_id = :id")
_LOCK = text("SELECT 1 FROM objects WHERE pack_id = ANY(:ids) ORDER BY sha256, kind FOR UPDATE")
_MOVE = """
    UPDATE objects o SET pack_id = %(new_id)s, position = x.new_position, stored_bytes = x.length
    FROM json_to_recordset(%(rows)s::json) AS x(old_id uuid, position bigint, new_position bigint, length bigint)
    WHERE o.pack_id = x.old_id AND o.position = x.position"""
_LEFT_BEHIND = text("SELECT count(*) FROM objects WHERE pack_id = ANY(:ids)")
_RETIRE = text("UPDATE packs SET state = 'retired', retired_at = now() WHERE id = ANY(:ids)")


@dataclass(frozen=True, slots=True)
class Compacted:
    packs_before: int = 0
    packs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    """Files of packs that were replaced at least a day ago."""


class _Changed(Exception):
    """Somebody put objects into a pack while it was copied. It stays as it is."""


def compact(
    engine: Engine,
    archive: Archive,
    scratch: Path,
    *,
    rekey: bool = False,
    everything: bool = False,
    keep_retired: timedelta = timedelta(days=1),
    rest_seconds: float = _REST_SECONDS,
) -> Compacted:
    """`rekey`: also packs of other keys than the active one, which are encrypted anew. `everything`: each pack that can be."""
    removed = remove_retired(engine, archive, keep_retired)
    before = after = bytes_before = bytes_after = 0
    for group in _groups(_candidates(engine, archive, rekey, everything)):
        with ExitStack() as held:
            packs = [pack for pack in group if _hold(archive, pack.id, rest_seconds, held)]
            if not packs or (len(packs) == 1 and not (everything or rekey or _is_wasteful(packs[0]))):
                continue
            made = _replace(engine, archive, scratch, [pack.id for pack in packs], rekey)
        if made is not None:
            before += len(packs)
            after += 1
            bytes_before += sum(pack.size_bytes for pack in packs)
            bytes_after += made.size
    return Compacted(before, after, bytes_before, bytes_after, removed)


def _candidates(engine: Engine, archive: Archive, rekey: bool, everything: bool) -> Iterator[Any]:
    with engine.connect() as connection:
        rows = connection.execute(_PACKS).all()
    for row in rows:
        if everything or row.size_bytes < _SMALL_BYTES or _is_wasteful(row) or (rekey and _has_old_key(archive, row.id)):
            yield row


def _is_wasteful(row: Any) -> bool:
    return bool(row.live_bytes < (1 - _DEAD_SHARE) * row.size_bytes)


def _has_old_key(archive: Archive, pack_id: UUID) -> bool:
    try:
        pack = archive.backend.open(pack_id)
    except Damage:
        return False
    first = next(walk(pack.read_at, pack.size, pack.name), None)
    return isinstance(first, Found) and first.header.fingerprint != archive.keys.active.fingerprint


def _groups(rows: Iterator[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
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


def _replace(engine: Engine, archive: Archive, scratch: Path, pack_ids: list[UUID], rekey: bool) -> SealedPack | None:
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        try:
            merge = Merge(archive, Path(folder), rekey=rekey)
            for pack_id in pack_ids:
                with engine.connect() as connection:
                    live = {row.position: (bytes(row.sha256), row.kind) for row in connection.execute(_LIVE, {"id": pack_id})}
                merge.add(archive.backend.open(pack_id), _keeps(live))
            made, moved = merge.finish()
        except Damage as damage:
            _log.warning("compaction_stopped", reason=str(damage))
            return None
        archive.backend.put(merge.path, made.id)
    try:
        with engine.begin() as connection:
            _repoint(connection, pack_ids, made, moved)
    except _Changed:
        archive.backend.remove(made.id)
        return None
    return made


def _keeps(live: dict[int, tuple[bytes, str]]) -> Callable[[Found], bool]:
    """What happened is kept for ever, and so are dictionaries; content only while something refers to it."""
    return lambda found: found.header.kind not in _CONTENT or found.offset in live


def _repoint(connection: Connection, pack_ids: list[UUID], made: SealedPack, moved: list[Moved]) -> None:
    batch_sql.run(connection, batch_sql.SEAL_PACK, **batch_sql.sealed_row(made))
    connection.execute(_LOCK, {"ids": pack_ids})
    rows = [
        {"old_id": item.old.pack_id, "position": item.old.offset, "new_position": item.offset, "length": item.length}
        for item in moved
    ]
    if rows:
        batch_sql.run(connection, _MOVE, rows=batch_sql.rows(rows), new_id=made.id)
    if connection.execute(_LEFT_BEHIND, {"ids": pack_ids}).scalar_one():
        raise _Changed
    connection.execute(_RETIRE, {"ids": pack_ids})
