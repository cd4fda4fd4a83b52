"""Health at a glance: each part of the archive with the alerts that are open about it."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.alerts.history import Alert, open_alerts
from archiver.db.states import AlertSeverity
from archiver.http.pages.base import View

AREAS: dict[str, tuple[str, frozenset[str]]] = {
    "sources": (
        "/sources",
        frozenset({"token_revoked", "source_failing", "sync_stale", "mailbox_gone", "journal_silent", "journal_waits"}),
    ),
    "completeness": ("/activity", frozenset({"gap", "dead_letters"})),
    "index": ("/activity", frozenset({"index_lag", "queue_depth", "worker_missing"})),
    "storage": ("/alerts", frozenset({"disk_low", "disk_full", "damage_found"})),
    "backup": ("/backups", frozenset({"backup_failed", "backup_old", "drill_failed"})),
    "keys": ("/alerts", frozenset({"keys_not_copied", "api_key_ends", "certificate_ends"})),
    "retention": ("/retention", frozenset({"approval_pending", "retention_failed", "audit_gap"})),
}
"""Where each part is shown, and the rules that watch it."""


@dataclass(frozen=True, slots=True)
class AreaHealth:
    name: str
    href: str
    alerts: tuple[Alert, ...]

    @property
    def state(self) -> str:
        if any(alert.severity is AlertSeverity.CRITICAL for alert in self.alerts):
            return "bad"
        return "warn" if self.alerts else "good"


def assess_health(view: View) -> list[AreaHealth]:
    with view.context.reading() as connection:
        found = open_alerts(connection)
    known = frozenset().union(*(rules for _, rules in AREAS.values()))
    areas = [
        AreaHealth(name, href, tuple(alert for alert in found if alert.rule in rules)) for name, (href, rules) in AREAS.items()
    ]
    others = tuple(alert for alert in found if alert.rule not in known)
    return [*areas, AreaHealth("other", "/alerts", others)] if others else areas
