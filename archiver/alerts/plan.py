"""Decides what changes: which alerts begin, are raised, are resolved. Pure: no database, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from archiver.alerts.rules import AlertRule
from archiver.db.states import AlertSeverity

_CLEAR_MINUTES = 5
"""A condition that comes and goes within this time stays one alert."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that holds now."""

    rule: str
    subject: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    severity: AlertSeverity | None = None
    """None for that of its rule."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    id: UUID
    rule: str
    subject: str
    first_seen_at: datetime
    last_seen_at: datetime
    raised_at: datetime | None


@dataclass(frozen=True, slots=True)
class AlertChanges:
    begin: tuple[Finding, ...]
    seen: tuple[tuple[UUID, Finding], ...]
    """Open alerts whose condition still holds."""
    raise_ids: tuple[UUID, ...]
    """Those of them that have held long enough."""
    resolve_ids: tuple[UUID, ...]
    forget_ids: tuple[UUID, ...]
    """Alerts whose condition went before they were raised."""


def plan_changes(
    findings: Iterable[Finding],
    open_alerts: Iterable[OpenAlert],
    rules: Mapping[str, AlertRule],
    unknown: frozenset[str],
    now: datetime,
) -> AlertChanges:
    """`unknown`: rules whose condition could not be checked; their alerts stay as they are."""
    found = {(one.rule, one.subject): one for one in findings}
    known = {(one.rule, one.subject): one for one in open_alerts}
    seen = tuple((alert.id, found[key]) for key, alert in known.items() if key in found)
    raised = [
        alert for key, alert in known.items() if key in found and alert.raised_at is None and _has_held(alert, rules, now)
    ]
    gone = [alert for key, alert in known.items() if key not in found and alert.rule not in unknown]
    return AlertChanges(
        begin=tuple(one for key, one in found.items() if key not in known),
        seen=seen,
        raise_ids=tuple(alert.id for alert in raised),
        resolve_ids=tuple(alert.id for alert in gone if alert.raised_at is not None and _has_cleared(alert, rules, now)),
        forget_ids=tuple(alert.id for alert in gone if alert.raised_at is None),
    )


def _has_held(alert: OpenAlert, rules: Mapping[str, AlertRule], now: datetime) -> bool:
    return now - alert.first_seen_at >= timedelta(minutes=rules[alert.rule].for_minutes)


def _has_cleared(alert: OpenAlert, rules: Mapping[str, AlertRule], now: datetime) -> bool:
    rule = rules.get(alert.rule)
    pause = min(rule.for_minutes, _CLEAR_MINUTES) if rule is not None and rule.enabled else 0
    return now - alert.last_seen_at >= timedelta(minutes=pause)
