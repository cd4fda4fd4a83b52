"""A mailbox whose address went to another one; what a cycle's listing said; no states of mailboxes in their source"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("mailboxes", sa.Column("former_address", sa.Text(), nullable=True))
    op.add_column("mailboxes", sa.Column("replaces_id", sa.UUID(), nullable=True))
    op.add_column(
        "sync_sessions",
        sa.Column("listing", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False),
    )
    # They were merged from all mailboxes, and read by nobody; what a source knows of itself is learned with its next listing.
    op.execute("UPDATE ingestion_sources SET sync_state = '{}'::jsonb WHERE sync_state <> '{}'::jsonb")
