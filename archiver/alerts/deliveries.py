"""Notices on their way: written with the change that they report, sent afterwards, and tried again with growing pauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.alerts import wording
from archiver.alerts.channels import AlertChannel, load_channels
from archiver.alerts.quiet_hours import end_of_quiet, zone_named
from archiver.alerts.senders import Notice, NotSent, send
from archiver.config import Settings, page_address
from archiver.db.ids import uuid7
from archiver.db.states import AlertSeverity, NoticeEvent
from archiver.db.values import json_text
from archiver.errors import UsageError
from archiver.logs import get_logger
from archiver.secrets import Keyring

_GIVE_UP = timedelta(days=1)
_FIRST_PAUSE_SECONDS = 30
_LONGEST_PAUSE_SECONDS = 3600
_AT_ONCE = 100
_KEEP_DAYS = 90

log = get_logger("alerts")

_INSERT = text("""
    INSERT INTO alert_deliveries (id, alert_id, channel_id, event, details, not_before)
    VALUES (:id, :alert_id, :channel_id, :event, CAST(:details AS jsonb), :not_before)""")

# An alert whose start was sent to no one needs no notice of its end, either.
_CANCEL = text("""
    UPDATE alert_deliveries SET state = 'cancelled' WHERE alert_id = :alert_id AND channel_id = :channel_id AND event = 'raised'
        AND state = 'pending' AND attempts = 0 RETURNING id""")

_DUE = text("""
    SELECT d.id, d.alert_id, d.channel_id, d.event, d.details, d.attempts, d.created_at, a.rule, a.subject, a.severity,
           a.details AS alert_details, a.first_seen_at, a.raised_at, a.resolved_at
    FROM alert_deliveries d LEFT JOIN alerts a ON a.id = d.alert_id
    WHERE d.state = 'pending' AND d.not_before <= now() ORDER BY d.not_before, d.id LIMIT :limit""")

_SENT = text(
    "UPDATE alert_deliveries SET state = 'sent', sent_at = now(), attempts = attempts + 1, error = NULL WHERE id = :id"
)
_FAILED = text("""
    UPDATE alert_deliveries SET attempts = attempts + 1, error = :error, state = :state,
        not_before = now() + :pause * interval '1 second' WHERE id = :id""")
_FORGET = text("DELETE FROM alert_deliveries WHERE state <> 'pending' AND created_at < now() - :days * interval '1 day'")


@dataclass(frozen=True, slots=True)
class NoticesSent:
    sent: int
    failed: int


def announce(
    connection: Connection,
    channels: Iterable[AlertChannel],
    alert_id: UUID,
    rule: str,
    severity: AlertSeverity,
    event: NoticeEvent,
    now: datetime,
) -> None:
    """One delivery for each channel that wants the alert. Quiet hours hold back all but critical ones."""
    for channel in channels:
        if not channel.wishes.accepts(rule, severity):
            continue
        ids = {"alert_id": alert_id, "channel_id": channel.id}
        if event is NoticeEvent.RESOLVED and connection.execute(_CANCEL, ids).first() is not None:
            continue
        not_before = None if severity is AlertSeverity.CRITICAL else _end_of_quiet(channel, now)
        _insert(connection, channel.id, event, alert_id=alert_id, not_before=not_before or now)


def announce_text(
    connection: Connection, channel: AlertChannel, event: NoticeEvent, title: str, body: str, now: datetime
) -> None:
    """A notice that belongs to no alert."""
    not_before = _end_of_quiet(channel, now) or now
    _insert(connection, channel.id, event, {"title": title, "text": body}, not_before=not_before)


def _end_of_quiet(channel: AlertChannel, now: datetime) -> datetime | None:
    wishes = channel.wishes
    return end_of_quiet(now, wishes.quiet_from, wishes.quiet_until, zone_named(wishes.zone))


def _insert(
    connection: Connection,
    channel_id: UUID,
    event: NoticeEvent,
    details: Mapping[str, Any] | None = None,
    *,
    not_before: datetime,
    alert_id: UUID | None = None,
) -> None:
    values = {"id": uuid7(), "alert_id": alert_id, "channel_id": channel_id, "event": str(event), "not_before": not_before}
    connection.execute(_INSERT, {**values, "details": json_text(dict(details or {}))})


def send_due(engine: Engine, settings: Settings, keyring: Keyring) -> NoticesSent:
    """Each result is committed at once: a process that dies repeats at most the notice in its hands, under the same id."""
    with engine.begin() as connection:
        connection.execute(_FORGET, {"days": _KEEP_DAYS})
        channels = {channel.id: channel for channel in load_channels(connection, settings, keyring)}
        rows = connection.execute(_DUE, {"limit": _AT_ONCE}).all()
    sent = failed = 0
    for row in rows:
        error = _try(row, channels.get(row.channel_id), settings)
        with engine.begin() as connection:
            if error is None:
                connection.execute(_SENT, {"id": row.id})
                sent += 1
            else:
                failed += 1
                _note_failure(connection, row, error, is_gone=row.channel_id not in channels)
    if rows:
        log.info("notices", sent=sent, failed=failed)
    return NoticesSent(sent, failed)


def _try(row: Any, channel: AlertChannel | None, settings: Settings) -> str | None:
    """The error, or None."""
    if channel is None:
        return "the channel was removed"
    try:
        send(_notice(row, channel, settings), channel.parsed(settings))
    except (NotSent, UsageError) as error:
        log.warning("notice_not_sent", channel=channel.name, event_kind=row.event, error=str(error))
        return str(error)
    except Exception:
        log.exception("notice_not_sent", channel=channel.name)
        return "an unexpected error, see the log"
    return None


def _note_failure(connection: Connection, row: Any, error: str, *, is_gone: bool) -> None:
    pause = min(_FIRST_PAUSE_SECONDS * 2**row.attempts, _LONGEST_PAUSE_SECONDS)
    now = connection.execute(text("SELECT now()")).scalar_one()
    ends = is_gone or now - row.created_at > _GIVE_UP
    connection.execute(_FAILED, {"id": row.id, "error": error, "pause": pause, "state": "failed" if ends else "pending"})


def _notice(row: Any, channel: AlertChannel, settings: Settings) -> Notice:
    link, language = f"{page_address(settings)}/alerts", channel.wishes.language
    if row.rule is None:
        details = row.details
        return Notice(row.id, row.event, "info", "", "", details["title"], details["text"], row.created_at, link)
    title = wording.title(row.rule, row.subject, row.alert_details, language)
    if row.event == NoticeEvent.RESOLVED:
        times = {"raised": _time(row.raised_at), "resolved": _time(row.resolved_at)}
        text_, title = wording.notice("resolved_text", language, **times), wording.notice("resolved", language, title=title)
    else:
        advice = wording.advice(row.rule, row.alert_details, language)
        text_ = wording.notice("raised_text", language, since=_time(row.first_seen_at), advice=advice)
    return Notice(row.id, row.event, row.severity, row.rule, row.subject, title, f"{title}\n\n{text_}", row.created_at, link)


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "—"


def send_test(channel: AlertChannel, settings: Settings) -> None:
    """At once, whatever the quiet hours. Raises NotSent or UsageError."""
    language = channel.wishes.language
    title, body = wording.notice("test", language), wording.notice("test_text", language)
    now = datetime.now().astimezone()
    link = f"{page_address(settings)}/alerts"
    send(Notice(uuid7(), NoticeEvent.TEST, "info", "", "", title, body, now, link), channel.parsed(settings))
