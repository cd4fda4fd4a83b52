"""When each kind of maintenance last succeeded and last failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from archiver.db.values import json_text

VERIFY = "verify"
BACKUP = "backup"
DRILL = "drill"
COMPACT = "compact"
KEYS_COPIED = "keys-copied"
SUMMARY = "weekly-summary"


@dataclass(frozen=True, slots=True)
class MaintenanceOutcome:
    name: str
    succeeded_at: datetime | None
    failed_at: datetime | None
    details: dict[str, Any]
    """Of the last one, such as `reason`, `problems` or `target`."""

    @property
    def has_failed(self) -> bool:
        """The last one failed."""
        return self.failed_at is not None and (self.succeeded_at is None or self.failed_at > self.succeeded_at)


def record(connection: Connection, name: str, *, succeeded: bool, **details: Any) -> None:
    column = "succeeded_at" if succeeded else "failed_at"
    statement = text(
        f"INSERT INTO maintenance_outcomes (name, {column}, details) VALUES (:name, clock_timestamp(), CAST(:details AS jsonb))"  # noqa: S608
        f" ON CONFLICT (name) DO UPDATE SET {column} = excluded.{column}, details = excluded.details"
    )
    connection.execute(statement, {"name": name, "details": json_text(details)})


def load(connection: Connection, name: str) -> MaintenanceOutcome | None:
    statement = text("SELECT name, succeeded_at, failed_at, details FROM maintenance_outcomes WHERE name = :name")
    row = connection.execute(statement, {"name": name}).first()
    return MaintenanceOutcome(*row) if row else None


def load_all(connection: Connection) -> list[MaintenanceOutcome]:
    rows = connection.execute(text("SELECT name, succeeded_at, failed_at, details FROM maintenance_outcomes ORDER BY name"))
    return [MaintenanceOutcome(*row) for row in rows]
