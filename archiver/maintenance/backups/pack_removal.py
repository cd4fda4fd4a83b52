"""Removes the files of packs that compaction has replaced: after a delay, and never while a backup copies them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.logs import get_logger
from archiver.store.archive import Archive
from archiver.store.errors import PackLocked

_log = get_logger(__name__)

_KEEP = text("SELECT pg_advisory_xact_lock_shared(hashtextextended('archiver:pack-files', 0))")
_MAY_REMOVE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('archiver:pack-files', 0))")
_NO_TIMEOUT = text("SET LOCAL idle_in_transaction_session_timeout = 0")
_REMOVABLE = text("""
    SELECT p.id FROM packs p WHERE p.state = 'retired' AND p.removed_at IS NULL AND p.retired_at <= now() - :age
    AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.pack_id = p.id) ORDER BY p.id""")
# Files that are there again, such as from a copy of the folder: nothing refers to them, and they hold what was deleted since.
_RETURNED = text("SELECT id FROM packs WHERE id = ANY(:ids) AND state = 'retired' AND removed_at IS NOT NULL ORDER BY id")
_REMOVED = text("UPDATE packs SET removed_at = now() WHERE id = :id AND state = 'retired'")


@contextmanager
def keep_files(engine: Engine) -> Iterator[None]:
    """No pack file is removed within this block. Enter it before reading the list of packs."""
    with engine.begin() as connection:
        connection.execute(_NO_TIMEOUT)
        connection.execute(_KEEP)
        yield


def returned_packs(engine: Engine, archive: Archive) -> list[UUID]:
    """Packs that were replaced and removed, and whose files are there again."""
    with engine.connect() as connection:
        return list(connection.execute(_RETURNED, {"ids": list(archive.backend.packs())}).scalars())


def remove_retired(engine: Engine, archive: Archive, age: timedelta) -> int:
    """The file first, then its row: after a crash between the two, the next run removes it again. The row stays, so that
    backups know which of their packs were replaced, and a file that comes back is recognised."""
    with engine.connect() as connection:
        ids = list(connection.execute(_REMOVABLE, {"age": age}).scalars())
    removed = 0
    for pack_id in [*ids, *returned_packs(engine, archive)]:
        with engine.begin() as connection:
            if not connection.execute(_MAY_REMOVE).scalar_one():
                break
            try:
                archive.backend.remove(pack_id)
            except PackLocked as locked:
                _log.info("pack_stays_locked", reason=str(locked))
                continue
            connection.execute(_REMOVED, {"id": pack_id})
        removed += 1
    return removed
