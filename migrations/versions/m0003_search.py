"""Search indexes and threads"""

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("messages", sa.Column("thread_subject", sa.UUID(), nullable=True), if_not_exists=True)
    order = ["archived_at", "id"]
    indexes.replace("ix_messages_to_index", "messages", order, where="indexed_version < index_version")
    indexes.create("ix_messages_to_extract", "messages", order, where="search_state = 'body'")
    indexes.create("ix_messages_thread_subject", "messages", ["thread_subject", "sort_at"], where="thread_subject IS NOT NULL")
    indexes.create("ix_attachments_text_sha256", "attachments", ["text_sha256"], where="text_sha256 IS NOT NULL")
    op.create_table(
        "search_indexes",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.Text(), nullable=False),
        sa.Column("engine_created_at", sa.Text(), nullable=False),
        sa.Column("engine_updated_at", sa.Text(), nullable=True),
        sa.Column("cursor_pack_id", sa.UUID(), nullable=True),
        sa.Column("cursor_position", sa.BigInteger(), nullable=True),
        sa.Column("done", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("total", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("is_filled", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("compared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('live', 'building')", name=op.f("ck_search_indexes_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_search_indexes")),
        sa.UniqueConstraint("state", name=op.f("uq_search_indexes_state")),
        sa.UniqueConstraint("uid", name=op.f("uq_search_indexes_uid")),
    )
    op.create_table(
        "thread_links",
        sa.Column("key", sa.UUID(), nullable=False),
        sa.Column("thread_id", sa.UUID(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_thread_links")),
    )
    op.create_index("ix_thread_links_thread_id", "thread_links", ["thread_id"], unique=False)
