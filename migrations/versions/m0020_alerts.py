"""Alerts, their channels and deliveries, and the last outcome of each kind of maintenance"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_NOW = sa.text("now()")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _alerts()
    _channels()
    _deliveries()
    op.create_table(
        "maintenance_outcomes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("succeeded_at", _TIME, nullable=True),
        sa.Column("failed_at", _TIME, nullable=True),
        _object("details"),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_maintenance_outcomes")),
    )


def _object(name: str) -> sa.Column[object]:
    return sa.Column(name, postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False)


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        _object("details"),
        sa.Column("first_seen_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("last_seen_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("raised_at", _TIME, nullable=True),
        sa.Column("resolved_at", _TIME, nullable=True),
        sa.Column("acknowledged_at", _TIME, nullable=True),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.CheckConstraint("severity IN ('info', 'warning', 'critical')", name=op.f("ck_alerts_severity")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index(
        "uq_alerts_open", "alerts", ["rule", "subject"], unique=True, postgresql_where=sa.text("resolved_at IS NULL")
    )
    listed = [sa.text("raised_at DESC"), sa.text("id DESC")]
    op.create_index("ix_alerts_listed", "alerts", listed, postgresql_where=sa.text("raised_at IS NOT NULL"))
    op.create_table(
        "alert_rules",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=True),
        sa.Column("for_minutes", sa.BigInteger(), nullable=True),
        sa.Column("updated_at", _TIME, server_default=_NOW, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_alert_rules")),
    )


def _channels() -> None:
    op.create_table(
        "alert_channels",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=False),
        sa.Column("min_severity", sa.Text(), server_default="warning", nullable=False),
        sa.Column("muted", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("wants_summary", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("quiet_from", sa.Text(), nullable=True),
        sa.Column("quiet_until", sa.Text(), nullable=True),
        sa.Column("created_at", _TIME, server_default=_NOW, nullable=False),
        sa.CheckConstraint("min_severity IN ('info', 'warning', 'critical')", name=op.f("ck_alert_channels_min_severity")),
        sa.CheckConstraint("(quiet_from IS NULL) = (quiet_until IS NULL)", name=op.f("ck_alert_channels_quiet_hours")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_alert_channels_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_channels")),
    )
    op.create_index(op.f("ix_alert_channels_user_id"), "alert_channels", ["user_id"])


def _deliveries() -> None:
    op.create_table(
        "alert_deliveries",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("alert_id", sa.UUID(), nullable=True),
        sa.Column("channel_id", sa.UUID(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        _object("details"),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("not_before", _TIME, server_default=_NOW, nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", _TIME, server_default=_NOW, nullable=False),
        sa.Column("sent_at", _TIME, nullable=True),
        sa.CheckConstraint("event IN ('raised', 'resolved', 'summary', 'test')", name=op.f("ck_alert_deliveries_event")),
        sa.CheckConstraint("state IN ('pending', 'sent', 'failed', 'cancelled')", name=op.f("ck_alert_deliveries_state")),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_alert_deliveries_alert_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_deliveries")),
    )
    op.create_index(op.f("ix_alert_deliveries_alert_id"), "alert_deliveries", ["alert_id"])
    due = sa.text("state = 'pending'")
    op.create_index("ix_alert_deliveries_due", "alert_deliveries", ["not_before", "id"], postgresql_where=due)
    op.create_index("ix_alert_deliveries_channel", "alert_deliveries", ["channel_id", sa.text("created_at DESC")])
