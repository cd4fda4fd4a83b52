"""Checks that there is space for more bytes, before and while they arrive; callers are asked to retry later.

Below DISK_MIN_FREE_BYTES nothing more is written: a full disk would stop Postgres, too.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from archiver.config import Settings
from archiver.db.sql import query, run
from archiver.errors import TooMany

_RETRY_SECONDS = 300
_RESERVED_SECONDS = 3_600
"""An upload that is idle for longer loses its reservation, and needs a new one to continue."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_RECEIVING = "SELECT id, size_bytes FROM uploads WHERE state = 'receiving'"


class NoRoom(TooMany):
    code = "no_room"


def check_disk(settings: Settings, more_bytes: int = 0) -> None:
    """Raises NoRoom if this many more bytes would leave too little space. Cheap enough to call for each piece."""
    if shutil.disk_usage(settings.archiver_data).free - more_bytes < settings.disk_min_free_bytes:
        raise NoRoom("the disk is nearly full, so nothing more is written: free some space", _RETRY_SECONDS)


def disk_check(settings: Settings, target: Path) -> Callable[[int], None]:
    """The check for writing to `target`: none if that is on another disk than the archive."""
    is_ours = target.absolute().parent.stat().st_dev == settings.archiver_data.stat().st_dev
    return partial(check_disk, settings) if is_ours else lambda _: None


@contextmanager
def explain_full_disk() -> Iterator[None]:
    """Around a write, because other processes may have filled the disk since the check."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom("the disk is full, so nothing more is written: free some space", _RETRY_SECONDS) from error
        raise


def check_room(settings: Settings, connection: Connection, more_bytes: int = 0, but: UUID | None = None) -> None:
    """Raises NoRoom with the reason. Space reserved by running uploads, except by `but`, counts as used."""
    check_disk(settings, more_bytes + _reserved(settings, connection, but))


def check_disk_for_one(settings: Settings) -> None:
    """For a single message, which may still be written when bulk work may not: half of the reserve is kept for such."""
    check_disk(settings, -(settings.disk_min_free_bytes // 2))


def reserve(settings: Settings, connection: Connection, more_bytes: int, but: UUID | None = None) -> None:
    """Like `check_room`, serialised until the transaction ends, so that the next caller counts this upload."""
    run(connection, "SELECT pg_advisory_xact_lock(hashtextextended('archiver:room', 0))")
    check_room(settings, connection, more_bytes, but)


@dataclass(frozen=True, slots=True)
class ReservedUpload:
    id: UUID
    size_bytes: int


def _reserved(settings: Settings, connection: Connection, but: UUID | None) -> int:
    total = 0
    for row in query(connection, _RECEIVING, ReservedUpload):
        with suppress(FileNotFoundError):
            there = upload_path(settings, row.id).stat()
            if row.id != but and time.time() - there.st_mtime < _RESERVED_SECONDS:
                total += max(0, row.size_bytes - there.st_size)
    return total


def upload_path(settings: Settings, upload_id: UUID) -> Path:
    """By its id: a name chosen by the client is never part of a path."""
    return settings.archiver_data / "uploads" / f"{upload_id}.part"
