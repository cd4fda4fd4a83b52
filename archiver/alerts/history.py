"""Open alerts, and those of the past."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.alerts import wording
from archiver.db.states import AlertSeverity
from archiver.errors import NotFound

_COLUMNS = "SELECT id, rule, subject, severity, details, raised_at, resolved_at, acknowledged_at, acknowledged_by FROM alerts"
_URGENT_FIRST = " ORDER BY severity = 'critical' DESC, raised_at DESC, id DESC"


@dataclass(frozen=True, slots=True)
class Alert:
    id: UUID
    rule: str
    subject: str
    severity: AlertSeverity
    details: dict[str, Any]
    raised_at: datetime
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None

    def title(self, language: str | None = None) -> str:
        return wording.title(self.rule, self.subject, self.details, language)

    def advice(self, language: str | None = None) -> str:
        return wording.advice(self.rule, self.details, language)


def open_alerts(connection: Connection) -> list[Alert]:
    """Critical ones first, then the newest."""
    rows = connection.execute(text(_COLUMNS + " WHERE raised_at IS NOT NULL AND resolved_at IS NULL" + _URGENT_FIRST))
    return [Alert(*row) for row in rows]


def past_alerts(connection: Connection, limit: int = 100, before: tuple[datetime, UUID] | None = None) -> list[Alert]:
    """Newest first; `before` continues after an entry, by when it was raised and its id."""
    at, alert_id = before or (None, None)
    statement = text(
        _COLUMNS + " WHERE raised_at IS NOT NULL AND resolved_at IS NOT NULL"
        " AND (CAST(:at AS timestamptz) IS NULL OR (raised_at, id) < (:at, CAST(:id AS uuid)))"
        " ORDER BY raised_at DESC, id DESC LIMIT :limit"
    )
    return [Alert(*row) for row in connection.execute(statement, {"at": at, "id": alert_id, "limit": limit})]


def count_open(connection: Connection) -> int:
    """Unacknowledged alerts, for the bell."""
    statement = text(
        "SELECT count(*) FROM alerts WHERE raised_at IS NOT NULL AND resolved_at IS NULL AND acknowledged_at IS NULL"
    )
    return int(connection.execute(statement).scalar_one())


def acknowledge(connection: Connection, principal: Principal, alert_id: UUID) -> None:
    """The bell stops counting it; it stays listed until it is resolved."""
    statement = text(
        "UPDATE alerts SET acknowledged_at = coalesce(acknowledged_at, now()), acknowledged_by = coalesce(acknowledged_by, :by)"
        " WHERE id = :id AND raised_at IS NOT NULL RETURNING rule"
    )
    rule = connection.execute(statement, {"id": alert_id, "by": principal.name}).scalar()
    if rule is None:
        raise NotFound(f"there is no alert {alert_id}")
    audit.record(connection, principal, "alert.acknowledged", "alert", alert_id, rule=rule)
