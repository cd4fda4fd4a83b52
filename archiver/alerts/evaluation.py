"""Checks all rules and writes what changed: alerts and the notices about them, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.alerts import search_notices, summary
from archiver.alerts.channels import AlertChannel, load_channels
from archiver.alerts.conditions import CONDITIONS, Situation
from archiver.alerts.deliveries import announce, send_due
from archiver.alerts.plan import AlertChanges, Finding, OpenAlert, plan_changes
from archiver.alerts.rules import AlertRule, load_rules
from archiver.config import Settings
from archiver.db.engine import held_lock, is_away
from archiver.db.ids import uuid7
from archiver.db.states import AlertSeverity, NoticeEvent
from archiver.db.values import json_text
from archiver.errors import NotReady
from archiver.logs import get_logger
from archiver.search.service import open_search
from archiver.secrets import Keyring

LOCK = "archiver:evaluate-alerts"
_OPEN = text("SELECT id, rule, subject, first_seen_at, last_seen_at, raised_at FROM alerts WHERE resolved_at IS NULL")
_BEGIN = text("""
    INSERT INTO alerts (id, rule, subject, severity, details, raised_at)
    VALUES (:id, :rule, :subject, :severity, CAST(:details AS jsonb), CASE WHEN :at_once THEN now() END)""")
_SEEN = text("UPDATE alerts SET last_seen_at = now(), details = CAST(:details AS jsonb), severity = :severity WHERE id = :id")
_RAISE = text("UPDATE alerts SET raised_at = now() WHERE id = ANY(:ids) RETURNING id, rule, severity")
_RESOLVE = text("UPDATE alerts SET resolved_at = now() WHERE id = ANY(:ids) RETURNING id, rule, severity")
_FORGET = text("DELETE FROM alerts WHERE id = ANY(:ids)")
_TIDY = text("DELETE FROM alerts WHERE resolved_at < now() - interval '400 days'")

log = get_logger("alerts")


@dataclass(frozen=True, slots=True)
class AlertsEvaluated:
    raised: int = 0
    resolved: int = 0
    sent: int = 0
    not_sent: int = 0


def evaluate(engine: Engine, settings: Settings, keyring: Keyring) -> AlertsEvaluated | None:
    """None if another process is at it."""
    with held_lock(engine, LOCK) as mine:
        if not mine:
            return None
        findings, unknown, rules = _check(engine, settings)
        with engine.begin() as connection:
            now: datetime = connection.execute(text("SELECT now()")).scalar_one()
            channels = load_channels(connection, settings, keyring)
            known = [OpenAlert(*row) for row in connection.execute(_OPEN)]
            changes = plan_changes(findings, known, rules, unknown, now)
            raised, resolved = _apply(connection, changes, rules, channels, now)
            summary.announce_weekly(connection, channels, now)
            connection.execute(_TIDY)
        _announce_searches(engine, settings, channels, now)
        notices = send_due(engine, settings, keyring)
    return AlertsEvaluated(raised, resolved, notices.sent, notices.failed)


def _announce_searches(engine: Engine, settings: Settings, channels: list[AlertChannel], now: datetime) -> None:
    """In a transaction of its own: alerts do not wait for the search server."""
    try:
        with engine.begin() as connection:
            search_notices.announce_new(connection, open_search(settings, engine), channels, now)
    except NotReady as error:
        log.warning("saved_searches_not_checked", reason=str(error))


def _check(engine: Engine, settings: Settings) -> tuple[list[Finding], frozenset[str], dict[str, AlertRule]]:
    """What holds now, and the rules that could not be checked. One failing rule does not stop the others."""
    findings: list[Finding] = []
    unknown: set[str] = set()
    with engine.connect() as connection:
        rules = load_rules(connection)
        now: datetime = connection.execute(text("SELECT now()")).scalar_one()
    for rule in (one for one in rules.values() if one.enabled):
        try:
            with engine.connect() as connection:
                findings += CONDITIONS[rule.name](Situation(connection, settings, now), rule.threshold or 0)
        except Exception as error:
            if is_away(error):
                raise
            log.exception("rule_not_checked", rule=rule.name)
            unknown.add(rule.name)
    return findings, frozenset(unknown), rules


def _apply(
    connection: Connection,
    changes: AlertChanges,
    rules: Mapping[str, AlertRule],
    channels: list[AlertChannel],
    now: datetime,
) -> tuple[int, int]:
    """The numbers of alerts raised and resolved."""
    for alert_id, finding in changes.seen:
        connection.execute(_SEEN, {"id": alert_id, **_values(finding, rules)})
    connection.execute(_FORGET, {"ids": list(changes.forget_ids)})
    raised = list(connection.execute(_RAISE, {"ids": list(changes.raise_ids)}))
    begun = [_begin(connection, finding, rules) for finding in changes.begin]
    resolved = list(connection.execute(_RESOLVE, {"ids": list(changes.resolve_ids)}))
    notices = [
        *((row, NoticeEvent.RAISED) for row in (*raised, *filter(None, begun))),
        *((row, NoticeEvent.RESOLVED) for row in resolved),
    ]
    for (alert_id, rule, severity), event in notices:
        announce(connection, channels, alert_id, rule, AlertSeverity(severity), event, now)
        log.warning("alert" if event is NoticeEvent.RAISED else "alert_resolved", rule=rule, alert=str(alert_id))
    return sum(1 for _, event in notices if event is NoticeEvent.RAISED), len(resolved)


def _begin(connection: Connection, finding: Finding, rules: Mapping[str, AlertRule]) -> tuple[UUID, str, str] | None:
    """The new alert, if its rule raises it at once."""
    alert_id, values = uuid7(), _values(finding, rules)
    at_once = rules[finding.rule].for_minutes == 0
    connection.execute(_BEGIN, {"id": alert_id, "rule": finding.rule, "subject": finding.subject, "at_once": at_once, **values})
    return (alert_id, finding.rule, values["severity"]) if at_once else None


def _values(finding: Finding, rules: Mapping[str, AlertRule]) -> dict[str, Any]:
    severity = finding.severity or rules[finding.rule].severity
    return {"severity": str(severity), "details": json_text(dict(finding.details))}
