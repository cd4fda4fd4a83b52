"""Statistics of the archive as a reader sees it: volume, time range, senders, and disk usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db.sql import query, query_one

_TOP = 12
_MONTHS_TO_FORECAST = 3


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
    """Original size of all copies."""
    stored_bytes: int | None
    """Size of all packs on disk; None for a reader who sees only a part of the archive."""
    months: tuple[Month, ...]
    """By the date of the mail."""
    archived: tuple[Month, ...]
    """By the time of archiving."""
    sources: tuple[Named, ...]
    senders: tuple[Named, ...]
    domains: tuple[Named, ...]

    @property
    def bytes_in_a_year(self) -> int | None:
        """Expected growth in a year, from the last twelve full months."""
        whole = self.months[-13:-1]
        return sum(month.bytes for month in whole) if len(whole) >= 12 else None


def months_until_full(archived: Sequence[Month], stored_bytes: int, original_bytes: int, free_bytes: int) -> int | None:
    """From what was archived in the last twelve full months, at the archive's own compression; None if it does not grow.

    The first months of an archive bring the mail of years: they say nothing about the months to come.
    """
    whole = archived[-13:-1]
    if len(whole) < _MONTHS_TO_FORECAST or not original_bytes:
        return None
    monthly = sum(month.bytes for month in whole) / len(whole) * stored_bytes / original_bytes
    return min(int(free_bytes / monthly), 12 * 100) if monthly >= 1 else None


def archived_messages(connection: Connection) -> int:
    """All messages of the archive, whoever may read them."""
    return query_one(connection, "SELECT count(*) FROM messages", int)


# Everything in one pass over the messages: a group per month of either date, per sender, per domain, and a total.
# `left_out` has a bit for each column that a group does not use.
_BY_MONTH, _BY_ARCHIVED, _BY_SENDER, _BY_DOMAIN, _ALL = 0b0111, 0b1011, 0b1101, 0b1110, 0b1111
_MESSAGES = """
    SELECT left_out, month, archived, sender, domain, messages, bytes FROM (
        SELECT groups.*, row_number() OVER (PARTITION BY left_out ORDER BY messages DESC, sender, domain) AS place FROM (
            SELECT grouping(month, archived, sender, domain) AS left_out, month, archived, sender, domain,
                count(*) AS messages, coalesce(sum(size_bytes), 0)::bigint AS bytes
            FROM (SELECT date_trunc('month', m.sort_at, :zone) AS month, date_trunc('month', {archived}, :zone) AS archived,
                    m.size_bytes,
                    CASE WHEN m.sender LIKE '%@%' THEN m.sender END AS sender,
                    CASE WHEN m.sender LIKE '%@%' THEN split_part(m.sender, '@', 2) END AS domain
                FROM messages m WHERE {seen}) AS seen
            GROUP BY GROUPING SETS ((month), (archived), (sender), (domain), ())) AS groups
        WHERE NOT (left_out = :by_sender AND sender IS NULL OR left_out = :by_domain AND domain IS NULL)) AS ranked
    WHERE left_out NOT IN (:by_sender, :by_domain) OR place <= :top
    ORDER BY left_out, coalesce(month, archived), place"""
_SOURCES = """
    SELECT s.name, sum(held.copies)::bigint AS messages, sum(held.bytes)::bigint AS bytes
    FROM (SELECT c.mailbox_id, count(*) AS copies, sum(m.size_bytes) AS bytes
        FROM message_copies c JOIN messages m ON m.id = c.message_id WHERE {seen} GROUP BY 1) AS held
    JOIN mailboxes b ON b.id = held.mailbox_id JOIN ingestion_sources s ON s.id = b.source_id
    GROUP BY s.id ORDER BY 2 DESC"""
_STORED = "SELECT coalesce(sum(size_bytes), 0)::bigint FROM packs WHERE state <> 'retired'"
_FIRST_MONTH = datetime(1990, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FigureGroup:
    left_out: int
    month: datetime | None
    archived: datetime | None
    sender: str | None
    domain: str | None
    messages: int
    bytes: int


def figures(connection: Connection, scope: MailScope, zone: tzinfo = UTC) -> Figures:
    """Months are those of the time zone, as in the searches behind them."""
    # A message is deleted with its last copy, so a reader who sees everything needs no check for a visible copy.
    seen = "true" if scope.is_everything else scope.messages("m")
    groups: dict[int, list[FigureGroup]] = defaultdict(list)
    values = {"by_sender": _BY_SENDER, "by_domain": _BY_DOMAIN, "top": _TOP, "zone": str(getattr(zone, "key", "UTC"))}
    for row in query(
        connection, _MESSAGES.format(seen=seen, archived=scope.archived_at()), FigureGroup, **values, **scope.values()
    ):
        groups[row.left_out].append(row)
    by_source = query(connection, _SOURCES.format(seen=scope.copies("c")), Named, **scope.values())
    stored = None
    if scope.mailboxes is None:
        stored = query_one(connection, _STORED, int)
    total = groups[_ALL][0]
    return Figures(
        messages=total.messages,
        bytes=total.bytes,
        copies=sum(row.messages for row in by_source),
        copied_bytes=sum(row.bytes for row in by_source),
        stored_bytes=stored,
        months=_months(((row.month, row) for row in groups[_BY_MONTH]), zone),
        archived=_months(((row.archived, row) for row in groups[_BY_ARCHIVED]), zone),
        sources=tuple(by_source),
        senders=tuple(Named(row.sender or "", row.messages, row.bytes) for row in groups[_BY_SENDER]),
        domains=tuple(Named(row.domain or "", row.messages, row.bytes) for row in groups[_BY_DOMAIN]),
    )


def _months(rows: Iterable[tuple[datetime | None, FigureGroup]], zone: tzinfo) -> tuple[Month, ...]:
    """Without implausible dates."""
    last = datetime.now(UTC) + timedelta(days=31)
    return tuple(
        Month(at.astimezone(zone), row.messages, row.bytes) for at, row in rows if at is not None and _FIRST_MONTH <= at < last
    )
