"""Mailboxes that wait after a failure before they are tried again: 1, 2, 4 … 60 minutes, or until a person requests a sync."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, run

_WAITING = """
    SELECT address, failures, next_due_at AS until, status_message AS reason FROM mailboxes
    WHERE source_id = :source AND gone_at IS NULL AND next_due_at > now() ORDER BY lower(address) LIMIT :limit"""
# The number of failures stays: a mailbox that fails again waits longer than before.
_END = "UPDATE mailboxes SET next_due_at = NULL WHERE source_id = :source AND next_due_at > now()"


@dataclass(frozen=True, slots=True)
class WaitingMailbox:
    address: str
    failures: int
    until: datetime
    reason: str | None

    @property
    def _failed(self) -> str:
        times = "once" if self.failures == 1 else f"{self.failures:,} times"
        return f"{self.address} failed {times} in a row ({self.reason or 'no reason is known'})"

    @property
    def ended(self) -> str:
        return f"{self._failed}, and would have waited until {self.until.astimezone():%H:%M:%S}: it is tried now."

    @property
    def going_on(self) -> str:
        return f"{self._failed}: it is tried again at {self.until.astimezone():%H:%M:%S}, or with the next `source sync`."


def waiting(connection: Connection, source_id: UUID, limit: int = 20) -> list[WaitingMailbox]:
    return query(connection, _WAITING, WaitingMailbox, source=source_id, limit=limit)


def end(connection: Connection, source_id: UUID) -> None:
    run(connection, _END, source=source_id)
