"""Retention policies, and the runs that carry them out"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "policy_versions",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("policy_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("zone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("counted_from", sa.Text(), nullable=False),
        sa.Column("from_year_end", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("keep_for", sa.Text(), nullable=True),
        sa.Column("delete_after", sa.Text(), nullable=True),
        sa.Column("is_retired", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("simulation", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("simulation_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("simulated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("approved_by", sa.Text(), nullable=True),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rejected_by", sa.Text(), nullable=True),
        sa.Column("rejected_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("counted_from IN ('received', 'sent', 'archived')", name=op.f("ck_policy_versions_counted_from")),
        sa.CheckConstraint("num_nonnulls(approved_at, rejected_at) < 2", name=op.f("ck_policy_versions_one_decision")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_versions")),
    )
    op.create_index("uq_policy_versions_policy_id_number", "policy_versions", ["policy_id", "number"], unique=True)
    op.create_table(
        "policy_checks",
        sa.Column("version_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("index_version", sa.BigInteger(), nullable=False),
        sa.Column("matches", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name=op.f("fk_policy_checks_message_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["version_id"], ["policy_versions.id"], name=op.f("fk_policy_checks_version_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("version_id", "message_id", "mailbox_id", name=op.f("pk_policy_checks")),
    )
    op.create_index(op.f("ix_policy_checks_message_id"), "policy_checks", ["message_id"], unique=False)
    op.create_table(
        "retention_runs",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version_ids", postgresql.ARRAY(sa.UUID()), nullable=False),
        sa.Column("after_id", sa.UUID(), nullable=True),
        sa.Column("copies", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("messages", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("held", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unclear", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tombstone_ids", postgresql.ARRAY(sa.UUID()), server_default=sa.text("'{}'::uuid[]"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_runs")),
    )
    op.create_index(
        "uq_retention_runs_open",
        "retention_runs",
        [sa.text("(true)")],
        unique=True,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
