"""The weekly summary: what was archived, what is missing, what needs attention. On Mondays at 7 UTC, or as soon as it can."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from archiver.alerts import wording
from archiver.alerts.channels import AlertChannel
from archiver.alerts.deliveries import announce_text
from archiver.db.states import NoticeEvent
from archiver.maintenance.checks import outcomes

_HOUR = 7
_WEEK = timedelta(days=7)
_FIGURES = text("""
    SELECT (SELECT coalesce(sum(archived), 0) FROM sync_runs WHERE finished_at > :since) AS archived,
           (SELECT coalesce(sum(bytes), 0) FROM sync_runs WHERE finished_at > :since) AS bytes,
           (SELECT count(*) FROM sync_runs WHERE finished_at > :since) AS runs,
           (SELECT count(*) FROM messages) AS messages,
           (SELECT coalesce(sum(last.missing), 0) FROM ingestion_sources s, LATERAL (
                SELECT r.missing FROM sync_runs r WHERE r.source_id = s.id ORDER BY r.finished_at DESC LIMIT 1) AS last
            WHERE s.removed_at IS NULL) AS missing,
           (SELECT count(*) FROM dead_letters WHERE discarded_at IS NULL) AS dead""")
_OPEN = text("SELECT rule, subject, details FROM alerts WHERE raised_at IS NOT NULL AND resolved_at IS NULL ORDER BY raised_at")


@dataclass(frozen=True, slots=True)
class WeeklyFigures:
    archived: int
    bytes: int
    runs: int
    messages: int
    missing: int
    dead: int
    backup_at: datetime | None
    open_alerts: tuple[tuple[str, str, dict[str, Any]], ...]
    """Rule, subject and values of each."""


def due_since(now: datetime) -> datetime:
    """The last Monday at 7 UTC."""
    monday = (now - timedelta(days=now.weekday())).replace(hour=_HOUR, minute=0, second=0, microsecond=0)
    return monday if monday <= now else monday - _WEEK


def announce_weekly(connection: Connection, channels: list[AlertChannel], now: datetime) -> bool:
    """Once a week, in the transaction that records it. The first one comes a week after the archive began to be watched."""
    last = outcomes.load(connection, outcomes.SUMMARY)
    if last is not None and last.succeeded_at is not None and last.succeeded_at >= due_since(now):
        return False
    outcomes.record(connection, outcomes.SUMMARY, succeeded=True)
    if last is None:
        return False
    figures = load_figures(connection, now - _WEEK)
    for channel in channels:
        if channel.wishes.wants_summary:
            title, body = wording.notice("summary", channel.wishes.language), compose_summary(figures, channel.wishes.language)
            announce_text(connection, channel, NoticeEvent.SUMMARY, title, body, now)
    return True


def load_figures(connection: Connection, since: datetime) -> WeeklyFigures:
    row = connection.execute(_FIGURES, {"since": since}).one()
    backup = outcomes.load(connection, outcomes.BACKUP)
    found = tuple((one.rule, one.subject, one.details) for one in connection.execute(_OPEN))
    counts = {name: int(value) for name, value in row._mapping.items()}
    return WeeklyFigures(**counts, backup_at=backup.succeeded_at if backup else None, open_alerts=found)


def compose_summary(figures: WeeklyFigures, language: str | None) -> str:
    def say(name: str, **values: Any) -> str:
        return wording.notice(f"summary_{name}", language, **values)

    counts = {"archived": f"{figures.archived:,}", "runs": f"{figures.runs:,}", "messages": f"{figures.messages:,}"}
    lines = [say("archived", megabytes=f"{figures.bytes / 1e6:,.1f}", **counts)]
    is_complete = not figures.missing and not figures.dead
    lines.append(say("complete") if is_complete else say("missing", missing=f"{figures.missing:,}", dead=f"{figures.dead:,}"))
    lines.append(say("backup", date=f"{figures.backup_at:%Y-%m-%d}") if figures.backup_at else say("no_backup"))
    lines.append(say("open") if figures.open_alerts else say("nothing"))
    lines += [f"- {wording.title(rule, subject, details, language)}" for rule, subject, details in figures.open_alerts]
    return "\n".join(lines)
