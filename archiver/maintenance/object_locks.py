"""Object Lock follows the policies: a pack in a bucket is locked until the last of its mail may be deleted.

Each pack is uploaded under a lock of STORAGE_S3_OBJECT_LOCK_DAYS. Here, the lock is extended where policies or labels keep mail
longer. In compliance mode a lock can't be shortened by anyone, so only what is known to be kept counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.db import sql
from archiver.logs import get_logger
from archiver.retention import policies
from archiver.retention.keeping import compile_rules
from archiver.store.archive import Archive
from archiver.store.writer import pack_name

_log = get_logger(__name__)
_PACKS_AT_ONCE = 20
_CHECK_AGAIN = timedelta(days=7)
"""Mail that was moved to another folder may have come under another policy."""

_DUE = """
    SELECT id, locked_until FROM packs WHERE state IN ('sealed', 'left') AND id > :after
    AND (lock_checked_at IS NULL OR lock_checked_at < greatest(
        (SELECT max(approved_at) FROM policy_versions), (SELECT max(set_at) FROM message_labels), CAST(:before AS timestamptz)))
    ORDER BY id LIMIT :limit"""
_IN_PACKS = """m.id IN (
    SELECT x.id FROM objects o JOIN messages x ON x.sha256 = o.sha256 WHERE o.kind = 'message' AND o.pack_id = ANY(:packs)
    UNION SELECT p.message_id FROM objects o JOIN message_parts p ON p.part_sha256 = o.sha256
    WHERE o.kind = 'part' AND o.pack_id = ANY(:packs))"""
_NEEDED = """
    WITH held AS (
        SELECT o.pack_id, x.id FROM objects o JOIN messages x ON x.sha256 = o.sha256
        WHERE o.kind = 'message' AND o.pack_id = ANY(:packs)
        UNION SELECT o.pack_id, p.message_id FROM objects o JOIN message_parts p ON p.part_sha256 = o.sha256
        WHERE o.kind = 'part' AND o.pack_id = ANY(:packs))
    SELECT h.pack_id, max({kept}) AS until FROM held h JOIN messages m ON m.id = h.id
    JOIN message_copies c ON c.message_id = m.id AND c.deleted_at IS NULL GROUP BY h.pack_id"""
_CHECKED = """
    UPDATE packs SET locked_until = greatest(locked_until, CAST(:until AS timestamptz)), lock_checked_at = clock_timestamp()
    WHERE id = :id"""
_LOCKED = "SELECT id, locked_until FROM packs WHERE state <> 'retired' AND locked_until IS NOT NULL ORDER BY id"


@dataclass(frozen=True, slots=True)
class LockedPack:
    id: UUID
    locked_until: datetime | None


def extend_locks(engine: Engine, archive: Archive, now: datetime | None = None) -> int:
    """Returns how many locks were extended. Nothing to do where packs are in a folder, or the bucket has no Object Lock."""
    if not archive.backend.can_lock:
        return 0
    at, extended, after = now or datetime.now(UTC), 0, UUID(int=0)
    while True:
        with engine.connect() as connection:
            some = sql.query(connection, _DUE, LockedPack, after=after, before=at - _CHECK_AGAIN, limit=_PACKS_AT_ONCE)
        if not some:
            return extended
        needed = _needed(engine, archive, [pack.id for pack in some], at)
        for pack in some:
            extended += _extend(engine, archive, pack.id, needed.get(pack.id))
        after = some[-1].id


def _needed(engine: Engine, archive: Archive, pack_ids: list[UUID], at: datetime) -> dict[UUID, datetime]:
    with engine.connect() as connection:
        versions = policies.in_force(connection)
    book = compile_rules(engine, versions, at)
    book.decide(engine, archive, _IN_PACKS, {"packs": pack_ids})
    with engine.connect() as connection:
        statement = text(_NEEDED.format(kept=book.known_kept_until))
        rows = connection.execute(statement, {**book.values, "packs": pack_ids}).all()
    return {row.pack_id: row.until for row in rows if row.until is not None and row.until > at}


def _extend(engine: Engine, archive: Archive, pack_id: UUID, until: datetime | None) -> bool:
    current = archive.backend.locked_until(pack_id)
    is_too_short = until is not None and (current is None or current < until)
    if until is not None and is_too_short:
        archive.backend.lock_until(pack_id, until)
        current = until
        _log.info("pack_lock_extended", pack=pack_name(pack_id), until=until.isoformat())
    with engine.begin() as connection:
        sql.run(connection, _CHECKED, id=pack_id, until=current)
    return is_too_short


def lock_problems(engine: Engine, archive: Archive) -> list[tuple[UUID, str]]:
    """Packs whose lock is not what it was set to: in compliance mode, that can't happen."""
    if not archive.backend.can_lock:
        return []
    with engine.connect() as connection:
        known = sql.query(connection, _LOCKED, LockedPack)
    problems = []
    for pack in known:
        current = archive.backend.locked_until(pack.id)
        if pack.locked_until is not None and (current is None or current < pack.locked_until - timedelta(seconds=1)):
            found = f"only until {current:%Y-%m-%d}" if current else "not at all"
            problems.append((pack.id, f"the bucket locks this pack {found}, not until {pack.locked_until:%Y-%m-%d}"))
    return problems
