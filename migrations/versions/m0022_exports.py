"""Exports as workflows: their frozen selection and volumes, and the key that signs them"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.alter_column("exports", "user_id", nullable=True)
    files = sa.Column("files", postgresql.JSONB(), server_default=sa.text("'[]'::jsonb"), nullable=False)
    op.add_column("exports", files, if_not_exists=True)
    op.create_table(
        "export_messages",
        sa.Column("export_id", sa.UUID(), nullable=False),
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mailbox_id", sa.UUID(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("sort_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["export_id"], ["exports.id"], name=op.f("fk_export_messages_export_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("export_id", "message_id", name=op.f("pk_export_messages")),
    )
    op.create_index("ix_export_messages_number", "export_messages", ["export_id", "number"])
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("private_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", moment, server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
