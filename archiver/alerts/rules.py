"""The rules: what is watched, from which value on, and for how long. The defaults suit a small company."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db.states import AlertSeverity
from archiver.errors import NotFound, UsageError

_MAX_MINUTES = 60 * 24 * 30
_MAX_THRESHOLD = 1e12


@dataclass(frozen=True, slots=True)
class AlertRule:
    name: str
    severity: AlertSeverity
    threshold: float | None = None
    unit: str = ""
    """Of the threshold: minutes, hours, days, messages, jobs, GB."""
    for_minutes: int = 0
    """How long the condition has to hold before the alert is raised."""
    enabled: bool = True


_WARNING, _CRITICAL = AlertSeverity.WARNING, AlertSeverity.CRITICAL

RULES: dict[str, AlertRule] = {
    rule.name: rule
    for rule in (
        AlertRule("token_revoked", _CRITICAL),
        AlertRule("source_failing", _WARNING, 2, "hours"),
        AlertRule("sync_stale", _WARNING, 24, "hours"),
        AlertRule("gap", _CRITICAL, 1, "messages", 60),
        AlertRule("mailbox_gone", _WARNING, 7, "days"),
        AlertRule("dead_letters", _WARNING, 10, "messages"),
        AlertRule("queue_depth", _WARNING, 5000, "jobs", 30),
        AlertRule("index_lag", _WARNING, 30, "minutes"),
        AlertRule("worker_missing", _CRITICAL, None, "", 10),
        AlertRule("disk_low", _WARNING, 5, "GB", 5),
        AlertRule("disk_full", _CRITICAL),
        AlertRule("certificate_ends", _WARNING, 14, "days"),
        AlertRule("api_key_ends", _WARNING, 14, "days"),
        AlertRule("damage_found", _CRITICAL),
        AlertRule("audit_gap", _CRITICAL),
        AlertRule("drill_failed", _CRITICAL),
        AlertRule("backup_failed", _CRITICAL),
        AlertRule("backup_old", _WARNING, 8, "days"),
        AlertRule("keys_not_copied", _WARNING, 1, "days"),
        AlertRule("approval_pending", _WARNING, 1, "days"),
        AlertRule("retention_failed", _CRITICAL),
        AlertRule("journal_silent", _WARNING, 24, "hours"),
        AlertRule("journal_waits", _CRITICAL, 30, "minutes"),
    )
}


def load_rules(connection: Connection) -> dict[str, AlertRule]:
    """The defaults with an administrator's changes. Changes of rules that this version does not have are ignored."""
    rows = connection.execute(text("SELECT name, enabled, threshold, for_minutes FROM alert_rules"))
    changed = {row.name: _changed(RULES[row.name], row) for row in rows if row.name in RULES}
    return {**RULES, **changed}


def _changed(rule: AlertRule, row: object) -> AlertRule:
    enabled, threshold, minutes = (getattr(row, name) for name in ("enabled", "threshold", "for_minutes"))
    return replace(
        rule,
        enabled=enabled,
        threshold=rule.threshold if threshold is None or rule.threshold is None else threshold,
        for_minutes=rule.for_minutes if minutes is None else int(minutes),
    )


def change_rule(
    connection: Connection,
    principal: Principal,
    name: str,
    *,
    enabled: bool = True,
    threshold: float | None = None,
    for_minutes: int | None = None,
) -> AlertRule:
    """A threshold or time of None is the default."""
    if name not in RULES:
        raise NotFound(f"there is no alert rule {name!r}: expected one of {', '.join(RULES)}")
    if threshold is not None and (RULES[name].threshold is None or not 0 < threshold <= _MAX_THRESHOLD):
        allowed = "no threshold" if RULES[name].threshold is None else f"a number of {RULES[name].unit} above 0"
        raise UsageError(f"threshold={threshold:g}: the rule {name} has {allowed}")
    if for_minutes is not None and not 0 <= for_minutes <= _MAX_MINUTES:
        raise UsageError(f"for_minutes={for_minutes}: expected 0 to {_MAX_MINUTES}")
    statement = text(
        "INSERT INTO alert_rules (name, enabled, threshold, for_minutes) VALUES (:name, :enabled, :threshold, :minutes)"
        " ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, threshold = excluded.threshold,"
        " for_minutes = excluded.for_minutes, updated_at = now()"
    )
    connection.execute(statement, {"name": name, "enabled": enabled, "threshold": threshold, "minutes": for_minutes})
    audit.record(
        connection,
        principal,
        "alert_rule.changed",
        "alert_rule",
        name,
        enabled=enabled,
        threshold=threshold,
        minutes=for_minutes,
    )
    return load_rules(connection)[name]


def check_names(names: Iterable[str]) -> list[str]:
    """Raises UsageError for a name that is not that of a rule."""
    found = [name.strip() for name in names if name.strip()]
    unknown = [name for name in found if name not in RULES]
    if unknown:
        raise UsageError(f"there is no alert rule {unknown[0]!r}: expected one of {', '.join(RULES)}")
    return found
