"""Restores: what was requested, and what became of each copy"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_STATES = "state IN ('checking', 'ready', 'restoring', 'done', 'failed', 'cancelled')"
_OUTCOMES = "outcome IN ('restored', 'present', 'absent', 'refused')"


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    nothing = sa.text("'{}'::jsonb")
    counts = [
        sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        for name in ("messages", "bytes", "restored", "present", "absent", "refused")
    ]
    op.create_table(
        "restores",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("user_id", sa.UUID(), nullable=True),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("selection", postgresql.JSONB(), server_default=nothing, nullable=False),
        sa.Column("destination", postgresql.JSONB(), server_default=nothing, nullable=False),
        sa.Column("destination_name", sa.Text(), nullable=False),
        sa.Column("credentials", sa.LargeBinary(), nullable=True),
        sa.Column("run_id", sa.UUID(), nullable=False),
        sa.Column("state", sa.Text(), server_default="checking", nullable=False),
        *counts,
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", moment, server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(_STATES, name=op.f("ck_restores_state")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_restores_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_restores")),
    )
    op.create_index(op.f("ix_restores_user_id"), "restores", ["user_id"])
    open_ones = sa.text("state IN ('checking', 'restoring')")
    op.create_index("ix_restores_open", "restores", ["run_id"], postgresql_where=open_ones)
    texts: list[sa.Column[list[str]]] = [
        sa.Column(name, postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False)
        for name in ("flags", "labels")
    ]
    op.create_table(
        "restore_messages",
        sa.Column("restore_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("account_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        *texts,
        sa.Column("received_at", moment, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(_OUTCOMES, name=op.f("ck_restore_messages_outcome")),
        sa.ForeignKeyConstraint(
            ["restore_id"], ["restores.id"], name=op.f("fk_restore_messages_restore_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("restore_id", "number", name=op.f("pk_restore_messages")),
    )
    op.create_index("ix_restore_messages_account", "restore_messages", ["restore_id", "account_id", "number"])
