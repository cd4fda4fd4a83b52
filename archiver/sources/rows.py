"""Sources as stored in Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query, query_optional
from archiver.db.states import SourceStatus
from archiver.errors import NotFound

_NAMES = (
    "id", "kind", "name", "status", "status_message", "settings", "credentials", "next_due_at", "failures", "last_started_at",
    "last_finished_at", "removed_at", "owner_id",
)  # fmt: skip
# An import source reads its imports one at a time, and shows the settings of the newest.
_SETTINGS = """coalesce((SELECT i.settings FROM imports i WHERE i.source_id = ingestion_sources.id AND kind = 'import'
    ORDER BY i.number DESC LIMIT 1), settings) AS settings"""
SOURCE_COLUMNS = ", ".join(f"s.{name}" for name in _NAMES)
"""For statements that join other tables to the source `s`."""
_COLUMNS = ", ".join(_SETTINGS if name == "settings" else name for name in _NAMES)


@dataclass(frozen=True, slots=True)
class Source:
    id: UUID
    kind: str
    name: str
    status: SourceStatus
    status_message: str | None
    settings: dict[str, Any]
    credentials: bytes | None = field(repr=False)
    next_due_at: datetime | None
    failures: int
    last_started_at: datetime | None
    last_finished_at: datetime | None
    removed_at: datetime | None
    owner_id: UUID | None

    @property
    def never_ran(self) -> bool:
        return self.last_started_at is None


_LOAD = f"SELECT {_COLUMNS} FROM ingestion_sources WHERE id = :id"  # noqa: S608
_FIND = f"""
    SELECT {_COLUMNS} FROM ingestion_sources
    WHERE removed_at IS NULL AND (lower(name) = lower(:name) OR CAST(id AS text) = :name)"""  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM ingestion_sources WHERE removed_at IS NULL ORDER BY lower(name)"  # noqa: S608


def load(connection: Connection, source_id: UUID) -> Source | None:
    return query_optional(connection, _LOAD, Source, id=source_id)


def find(connection: Connection, name: str) -> Source:
    """By its name, ignoring case, or its id."""
    found = query_optional(connection, _FIND, Source, name=name)
    if found is None:
        raise NotFound(f"there is no source named {name!r}; `archiver source list` shows all sources")
    return found


def all_sources(connection: Connection) -> list[Source]:
    return query(connection, _ALL, Source)
