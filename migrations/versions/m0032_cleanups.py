"""Clean-ups at the source, and the log of each message"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_STATES = "state IN ('checking', 'ready', 'deleting', 'done', 'stopped')"
_OUTCOMES = "outcome IN ('ready', 'deleting', 'deleted', 'gone', 'kept')"


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    counts = [
        sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        for name in ("messages", "bytes", "ready", "deleted", "gone", "kept")
    ]
    op.create_table(
        "cleanups",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("source_id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("after_days", sa.BigInteger(), nullable=False),
        sa.Column("needs_backup", sa.Boolean(), nullable=False),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.Text(), server_default="checking", nullable=False),
        *counts,
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", moment, server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(_STATES, name=op.f("ck_cleanups_state")),
        sa.ForeignKeyConstraint(["source_id"], ["ingestion_sources.id"], name=op.f("fk_cleanups_source_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cleanups")),
    )
    op.create_index(op.f("ix_cleanups_source_id"), "cleanups", ["source_id"])
    op.create_table(
        "cleanup_messages",
        sa.Column("cleanup_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", moment, nullable=True),
        sa.CheckConstraint(_OUTCOMES, name=op.f("ck_cleanup_messages_outcome")),
        sa.ForeignKeyConstraint(
            ["cleanup_id"], ["cleanups.id"], name=op.f("fk_cleanup_messages_cleanup_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cleanup_id", "number", name=op.f("pk_cleanup_messages")),
    )
    op.create_index(
        "ix_cleanup_messages_ready",
        "cleanup_messages",
        ["cleanup_id", "mailbox_id", "number"],
        postgresql_where=sa.text("outcome IN ('ready', 'deleting')"),
    )
