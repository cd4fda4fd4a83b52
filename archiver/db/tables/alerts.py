"""Alerts: what is wrong now and what was, who is notified and how; and the last outcome of each kind of maintenance."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from archiver.db.states import AlertSeverity, DeliveryState, NoticeEvent
from archiver.db.tables.base import Base, Count, CreatedAt, Id, JsonObject, Texts, one_of


class AlertTable(Base):
    """A condition that holds, or held. It is pending until it has held long enough to be raised."""

    __tablename__ = "alerts"

    id: Mapped[Id]
    rule: Mapped[str]
    subject: Mapped[str] = mapped_column(server_default=text("''"))
    """What the rule found, such as the id of a source: a rule is open at most once for each subject."""
    severity: Mapped[str]
    details: Mapped[JsonObject]
    """The values in its text."""
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[CreatedAt]
    raised_at: Mapped[datetime | None]
    resolved_at: Mapped[datetime | None]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]

    __table_args__ = (
        one_of("severity", AlertSeverity),
        Index("uq_alerts_open", "rule", "subject", unique=True, postgresql_where=text("resolved_at IS NULL")),
        Index("ix_alerts_listed", text("raised_at DESC"), text("id DESC"), postgresql_where=text("raised_at IS NOT NULL")),
    )


class AlertRuleTable(Base):
    """What an administrator changed in a rule. A rule without a row has its defaults."""

    __tablename__ = "alert_rules"

    name: Mapped[str] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    threshold: Mapped[float | None]
    for_minutes: Mapped[int | None]
    updated_at: Mapped[CreatedAt]


class AlertChannelTable(Base):
    """How one person is notified. Channels of ALERT_URLS have no row."""

    __tablename__ = "alert_channels"

    id: Mapped[Id]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    address: Mapped[bytes]
    """Sealed (archiver.secrets) for the channel's id: it may contain a password."""
    min_severity: Mapped[str] = mapped_column(server_default=AlertSeverity.WARNING)
    muted: Mapped[Texts]
    """Rules that this channel does not report."""
    wants_summary: Mapped[bool] = mapped_column(server_default=text("true"))
    language: Mapped[str | None]
    zone: Mapped[str | None]
    quiet_from: Mapped[str | None]
    """HH:MM in `zone`; until `quiet_until`, only critical alerts are sent."""
    quiet_until: Mapped[str | None]
    created_at: Mapped[CreatedAt]

    __table_args__ = (
        one_of("min_severity", AlertSeverity),
        CheckConstraint("(quiet_from IS NULL) = (quiet_until IS NULL)", name="quiet_hours"),
    )


class AlertDeliveryTable(Base):
    """One notice for one channel. Written with the change that it reports, so that a restart neither repeats nor loses it."""

    __tablename__ = "alert_deliveries"

    id: Mapped[Id]
    alert_id: Mapped[UUID | None] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"), index=True)
    channel_id: Mapped[UUID]
    event: Mapped[str]
    details: Mapped[JsonObject]
    """The text of a notice that belongs to no alert."""
    state: Mapped[str] = mapped_column(server_default=DeliveryState.PENDING)
    not_before: Mapped[CreatedAt]
    attempts: Mapped[Count]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    sent_at: Mapped[datetime | None]

    __table_args__ = (
        one_of("event", NoticeEvent),
        one_of("state", DeliveryState),
        Index("ix_alert_deliveries_due", "not_before", "id", postgresql_where=text("state = 'pending'")),
        Index("ix_alert_deliveries_channel", "channel_id", text("created_at DESC")),
    )


class MaintenanceOutcomeTable(Base):
    """When verify, backup, drill and the like last succeeded and last failed."""

    __tablename__ = "maintenance_outcomes"

    name: Mapped[str] = mapped_column(primary_key=True)
    succeeded_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    details: Mapped[JsonObject]
