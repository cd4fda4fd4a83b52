"""The heartbeat of a sync session: `last_activity_at`, written at most every 15 seconds."""

from __future__ import annotations

import time
from uuid import UUID

from sqlalchemy import Engine

from archiver.sync import sessions

HEARTBEAT_SECONDS = 15.0


class Heartbeat:
    """Connectors may report progress at any rate; a new total is written at once, everything else is throttled."""

    def __init__(self, engine: Engine, session_id: UUID, mailbox_id: UUID | None = None) -> None:
        self._engine, self._session_id, self._mailbox_id = engine, session_id, mailbox_id
        self._total = 0
        self._beat_at = time.monotonic()

    def progress(self, total: int | None) -> None:
        is_new = self._mailbox_id is not None and total is not None and total != self._total
        if not is_new and time.monotonic() - self._beat_at < HEARTBEAT_SECONDS:
            return
        self._beat_at = time.monotonic()
        with self._engine.begin() as connection:
            if is_new and self._mailbox_id is not None:
                self._total = total or 0
                sessions.set_total(connection, self._session_id, self._mailbox_id, self._total)
            sessions.touch(connection, self._session_id)
