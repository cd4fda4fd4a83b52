"""Conversations that people split"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "thread_splits",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_by_id", sa.UUID(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("undone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undone_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread_splits")),
    )
    op.create_table(
        "thread_split_members",
        sa.Column("key", sa.UUID(), nullable=False),
        sa.Column("split_id", sa.UUID(), nullable=False),
        sa.ForeignKeyConstraint(
            ["split_id"], ["thread_splits.id"], name=op.f("fk_thread_split_members_split_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("key", "split_id", name=op.f("pk_thread_split_members")),
    )
    op.create_index(op.f("ix_thread_split_members_split_id"), "thread_split_members", ["split_id"], unique=False)
