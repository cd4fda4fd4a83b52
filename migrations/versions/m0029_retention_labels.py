"""Retention labels on messages"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_BUILT_IN = """
INSERT INTO retention_labels (name, title, takes_date, created_by) VALUES
    ('keep-until', 'Keep until', true, 'archiver'), ('personal', 'Personal', false, 'archiver') ON CONFLICT DO NOTHING
"""


def upgrade() -> None:
    op.create_table(
        "retention_labels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("takes_date", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("hides_from_auditors", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("is_locked", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_retention_labels")),
    )
    op.create_table(
        "message_labels",
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("keep_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_by_id", sa.UUID(), nullable=True),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["label"], ["retention_labels.name"], name=op.f("fk_message_labels_label")),
        sa.PrimaryKeyConstraint("message_id", "label", name=op.f("pk_message_labels")),
    )
    op.create_index(op.f("ix_message_labels_label"), "message_labels", ["label"], unique=False)
    op.execute(_BUILT_IN)
