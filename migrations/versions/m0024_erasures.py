"""Erasure on request"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("addresses", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("terms", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("search_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("searched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unread", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=True),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rejected_by", sa.Text(), nullable=True),
        sa.Column("rejected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("copies", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("messages", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("kept", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("excluded", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("exports", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False),
        sa.Column("tombstone_ids", postgresql.ARRAY(sa.UUID()), server_default=sa.text("'{}'::uuid[]"), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("pack_ids", postgresql.ARRAY(sa.UUID()), server_default=sa.text("'{}'::uuid[]"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.CheckConstraint("num_nonnulls(approved_at, rejected_at) < 2", name=op.f("ck_erasures_one_decision")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
    )
    op.create_table(
        "erasure_messages",
        sa.Column("erasure_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("in_people", sa.Boolean(), nullable=False),
        sa.Column("excluded_by", sa.Text(), nullable=True),
        sa.Column("excluded_reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["erasure_id"], ["erasures.id"], name=op.f("fk_erasure_messages_erasure_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("erasure_id", "message_id", name=op.f("pk_erasure_messages")),
    )
    op.create_table(
        "erasure_objects",
        sa.Column("erasure_id", sa.UUID(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["erasure_id"], ["erasures.id"], name=op.f("fk_erasure_objects_erasure_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("erasure_id", "sha256", name=op.f("pk_erasure_objects")),
    )
