"""Leases of indexing in a table of their own; no index on messages that nobody asks"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "index_leases",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("message_ids", postgresql.ARRAY(sa.UUID()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_index_leases")),
    )
    op.drop_column("messages", "index_lease_until")
    # Each change of a message's state writes it anew in all indexes: two were never asked, one only for what is not done yet.
    op.drop_index("ix_messages_canonical_sha256", "messages")
    op.drop_index("ix_messages_internet_message_id", "messages")
    op.drop_index("ix_messages_first_run_id", "messages")
    op.create_index(
        "ix_messages_first_run_id", "messages", ["first_run_id"], postgresql_where=sa.text("search_state <> 'full'")
    )
