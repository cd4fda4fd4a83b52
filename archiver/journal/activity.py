"""How much journalled mail arrived lately: one number for each of the last 60 minutes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection

from archiver.journal.spool import SpoolBacklog, read_backlog
from archiver.journal.statements import load_activity

_MINUTES = 60
_FORMAT = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True, slots=True)
class JournalActivity:
    last_message_at: datetime | None
    last_hour: int
    last_minute: int
    backlog: SpoolBacklog


def spool_folder(data: Path) -> Path:
    return data / "journal"


def add_arrivals(minutes: dict[str, int], arrivals: list[datetime]) -> dict[str, int]:
    """Without the minutes that are more than an hour before the newest."""
    found = dict(minutes)
    for at in arrivals:
        key = at.strftime(_FORMAT)
        found[key] = found.get(key, 0) + 1
    newest = max(found, default="")
    if not newest:
        return found
    oldest = (datetime.strptime(newest, _FORMAT) - timedelta(minutes=_MINUTES)).strftime(_FORMAT)
    return {key: count for key, count in sorted(found.items()) if key > oldest}


def read_activity(connection: Connection, data: Path, now: datetime) -> JournalActivity | None:
    """None before the first message."""
    row = load_activity(connection)
    if row is None:
        return None
    minutes: dict[str, int] = row.state.get("minutes", {})
    hour, minute = ((now - timedelta(minutes=n)).strftime(_FORMAT) for n in (_MINUTES, 1))
    return JournalActivity(
        row.last_message_at,
        sum(count for key, count in minutes.items() if key > hour),
        sum(count for key, count in minutes.items() if key >= minute),
        read_backlog(spool_folder(data)),
    )
