"""The completeness ledger"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "folder_listings",
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("listed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("listed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["mailbox_id"], ["mailboxes.id"], name=op.f("fk_folder_listings_mailbox_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("mailbox_id", "folder", name=op.f("pk_folder_listings")),
    )
    op.create_table(
        "skipped_messages",
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("skipped_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["mailbox_id"], ["mailboxes.id"], name=op.f("fk_skipped_messages_mailbox_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("mailbox_id", "provider_key", name=op.f("pk_skipped_messages")),
    )
    op.create_table(
        "unaccounted_keys",
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("provider_key", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["mailbox_id"], ["mailboxes.id"], name=op.f("fk_unaccounted_keys_mailbox_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("mailbox_id", "provider_key", name=op.f("pk_unaccounted_keys")),
    )
    op.create_index("ix_unaccounted_keys_folder", "unaccounted_keys", ["mailbox_id", "folder"], unique=False)
