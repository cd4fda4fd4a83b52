"""Sources as stored in Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, TextClause, text

from archiver.db.states import SourceStatus
from archiver.errors import NotFound

_NAMES = (
    "id", "kind", "name", "status", "status_message", "settings", "credentials", "next_due_at", "failures", "last_started_at",
    "last_finished_at", "removed_at",
)  # fmt: skip
# An import source reads its imports one at a time, and shows the settings of the newest.
_SETTINGS = """coalesce((SELECT i.settings FROM imports i WHERE i.source_id = ingestion_sources.id AND kind = 'import'
    ORDER BY i.number DESC LIMIT 1), settings) AS settings"""
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

    @property
    def never_ran(self) -> bool:
        return self.last_started_at is None


def _source(row: Row[Any]) -> Source:
    """From a row that starts with the source's columns."""
    values = dict(zip(_NAMES, row, strict=False))
    return Source(**{**values, "status": SourceStatus(values["status"])})


_LOAD = text(f"SELECT {_COLUMNS} FROM ingestion_sources WHERE id = :id")  # noqa: S608


def load(connection: Connection, source_id: UUID) -> Source | None:
    row = connection.execute(_LOAD, {"id": source_id}).first()
    return _source(row) if row else None


def with_mailbox(columns: str) -> TextClause:
    """For `load_with`: a source and these columns of its mailbox `m`, whose id is :id."""
    own = ", ".join(f"s.{name}" for name in _NAMES)
    return text(f"SELECT {own}, {columns} FROM mailboxes m JOIN ingestion_sources s ON s.id = m.source_id WHERE m.id = :id")  # noqa: S608


def load_with(connection: Connection, statement: TextClause, **values: Any) -> tuple[Source, Row[Any]]:
    row = connection.execute(statement, values).one()
    return _source(row), row


def find(connection: Connection, name: str) -> Source:
    """By its name, ignoring case, or its id."""
    row = connection.execute(
        text(
            f"SELECT {_COLUMNS} FROM ingestion_sources"  # noqa: S608
            " WHERE removed_at IS NULL AND (lower(name) = lower(:name) OR CAST(id AS text) = :name)"
        ),
        {"name": name},
    ).first()
    if row is None:
        raise NotFound(f"there is no source named {name!r}; `archiver source list` shows all sources")
    return _source(row)


def all_sources(connection: Connection) -> list[Source]:
    statement = text(f"SELECT {_COLUMNS} FROM ingestion_sources WHERE removed_at IS NULL ORDER BY lower(name)")  # noqa: S608
    return [_source(row) for row in connection.execute(statement)]
