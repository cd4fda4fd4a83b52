"""Whether there is room for more bytes. Whoever brings some asks first and again while they arrive, and is told to come back.

Below DISK_MIN_FREE_BYTES nothing of ours grows: a full disk would stop Postgres, too.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.config import Settings
from archiver.errors import TooMany

_OUTBOX_PER_QUEUE_PLACE = 10
_RETRY_SECONDS = 300
_RESERVED_SECONDS = 3_600
"""An upload that stands still for longer has no room set aside any more, and asks for it again when it goes on."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WAITING = text("SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT :most) AS waiting")
_RECEIVING = text("SELECT id, size_bytes FROM uploads WHERE state = 'receiving'")


class NoRoom(TooMany):
    code = "no_room"


def check_disk(settings: Settings, more_bytes: int = 0) -> None:
    """Raises NoRoom if so many bytes more would leave too little. Cheap enough for each piece."""
    if shutil.disk_usage(settings.archiver_data).free - more_bytes < settings.disk_min_free_bytes:
        raise NoRoom("the disk is nearly full: nothing more is written", _RETRY_SECONDS)


def spender(settings: Settings, target: Path) -> Callable[[int], None]:
    """For what is written to `target`: on the disk of the archive its room is guarded, another disk is nobody's business."""
    is_ours = target.absolute().parent.stat().st_dev == settings.archiver_data.stat().st_dev
    return partial(check_disk, settings) if is_ours else lambda _: None


@contextmanager
def full_disk_told() -> Iterator[None]:
    """Around a write: others may have filled the disk meanwhile."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom("the disk is full: nothing more is written", _RETRY_SECONDS) from error
        raise


def check_room(settings: Settings, connection: Connection, more_bytes: int = 0, but: UUID | None = None) -> None:
    """Raises NoRoom, with the reason. What uploads under way will still need is not there for others (`but`: this one's)."""
    check_disk(settings, more_bytes + _reserved(settings, connection, but))
    most = settings.queue_max_depth * _OUTBOX_PER_QUEUE_PLACE
    if int(connection.execute(_WAITING, {"most": most + 1}).scalar_one()) > most:
        raise NoRoom("too much mail waits to be indexed: more is taken in when that is done", 60)


def reserve(settings: Settings, connection: Connection, more_bytes: int, but: UUID | None = None) -> None:
    """As `check_room`, one after the other until the transaction ends: its upload is counted by the next one."""
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('archiver:room', 0))"))
    check_room(settings, connection, more_bytes, but)


def _reserved(settings: Settings, connection: Connection, but: UUID | None) -> int:
    total = 0
    for row in connection.execute(_RECEIVING):
        with suppress(FileNotFoundError):
            there = upload_path(settings, row.id).stat()
            if row.id != but and time.time() - there.st_mtime < _RESERVED_SECONDS:
                total += max(0, row.size_bytes - there.st_size)
    return total


def upload_path(settings: Settings, upload_id: UUID) -> Path:
    """By its id: no name that somebody gave is ever part of a path."""
    return settings.archiver_data / "uploads" / f"{upload_id}.part"
