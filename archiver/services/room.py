"""Whether there is room for more mail. Whoever brings some from outside asks first, and is told to come back."""

from __future__ import annotations

import shutil

from sqlalchemy import Connection, text

from archiver.config import Settings
from archiver.errors import TooMany

_OUTBOX_PER_QUEUE_PLACE = 10
_WAITING = text("SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT :most) AS waiting")


class NoRoom(TooMany):
    code = "no_room"


def check_room(settings: Settings, connection: Connection, more_bytes: int = 0) -> None:
    """Raises NoRoom, with the reason."""
    free = shutil.disk_usage(settings.archiver_data).free
    if free - more_bytes < settings.disk_min_free_bytes:
        raise NoRoom("the disk is nearly full: no mail is taken in", 300)
    most = settings.queue_max_depth * _OUTBOX_PER_QUEUE_PLACE
    if int(connection.execute(_WAITING, {"most": most + 1}).scalar_one()) > most:
        raise NoRoom("too much mail waits to be indexed: more is taken in when that is done", 60)
