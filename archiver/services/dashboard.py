"""Figures of the archive as somebody sees it: how much, since when, from whom, and what it takes on disk."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from archiver.services.access import Scope

_TOP = 12


@dataclass(frozen=True, slots=True)
class Month:
    at: datetime
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    messages: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    messages: int
    bytes: int
    copies: int
    copied_bytes: int
    """All copies, as the sources gave them."""
    stored_bytes: int | None
    """All packs on disk; None for somebody who sees a part only."""
    months: tuple[Month, ...]
    """By date of the mail."""
    archived: tuple[Month, ...]
    """By when it came into the archive."""
    sources: tuple[Named, ...]
    senders: tuple[Named, ...]
    domains: tuple[Named, ...]

    @property
    def bytes_in_a_year(self) -> int | None:
        """What the last twelve whole months of mail would bring again."""
        whole = self.months[-13:-1]
        return sum(month.bytes for month in whole) if len(whole) >= 12 else None


def figures(connection: Connection, scope: Scope) -> Figures:
    seen, values = scope.messages("m"), scope.values()

    def months(column: str) -> tuple[Month, ...]:
        statement = text(
            f"SELECT date_trunc('month', m.{column}) AS at, count(*), coalesce(sum(m.size_bytes), 0) FROM messages m"  # noqa: S608
            f" WHERE m.{column} > '1990-01-01' AND m.{column} < now() + interval '1 month' AND {seen} GROUP BY 1 ORDER BY 1"
        )
        return tuple(Month(row[0], int(row[1]), int(row[2])) for row in connection.execute(statement, values))

    def top(expression: str) -> tuple[Named, ...]:
        statement = text(
            f"SELECT {expression} AS name, count(*) AS n, sum(m.size_bytes) FROM messages m"  # noqa: S608
            f" WHERE m.sender LIKE '%@%' AND {seen} GROUP BY 1 ORDER BY n DESC, name LIMIT {_TOP}"
        )
        return tuple(Named(row[0], int(row[1]), int(row[2])) for row in connection.execute(statement, values))

    total = connection.execute(
        text(f"SELECT count(*), coalesce(sum(m.size_bytes), 0) FROM messages m WHERE {seen}"),  # noqa: S608
        values,
    ).one()
    by_source = connection.execute(
        text(
            "SELECT s.name, count(*), coalesce(sum(m.size_bytes), 0)"  # noqa: S608
            " FROM message_copies c JOIN messages m ON m.id = c.message_id"
            " JOIN mailboxes b ON b.id = c.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id"
            f" WHERE {scope.copies('c')} GROUP BY s.id ORDER BY 2 DESC"
        ),
        values,
    ).all()
    stored = None
    if scope.mailboxes is None:
        packs = text("SELECT coalesce(sum(size_bytes), 0) FROM packs WHERE state <> 'retired'")
        stored = int(connection.execute(packs).scalar_one())
    return Figures(
        messages=int(total[0]),
        bytes=int(total[1]),
        copies=sum(int(row[1]) for row in by_source),
        copied_bytes=sum(int(row[2]) for row in by_source),
        stored_bytes=stored,
        months=months("sort_at"),
        archived=months("archived_at"),
        sources=tuple(Named(row[0], int(row[1]), int(row[2])) for row in by_source),
        senders=top("m.sender"),
        domains=top("split_part(m.sender, '@', 2)"),
    )
