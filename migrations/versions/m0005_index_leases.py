"""Leases of indexing in a table of their own; no index on messages that nobody asks"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from migrations import indexes

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Each change of a message's state writes it anew in all indexes: two were never asked, one only for what is not done yet.
    indexes.drop("ix_messages_canonical_sha256", "messages")
    indexes.drop("ix_messages_internet_message_id", "messages")
    indexes.replace("ix_messages_first_run_id", "messages", ["first_run_id"], where="search_state <> 'full'")
    op.create_table(
        "index_leases",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("message_ids", postgresql.ARRAY(sa.UUID()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_index_leases")),
    )
    op.drop_column("messages", "index_lease_until")
