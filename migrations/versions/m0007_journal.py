"""Numbers for the journal, two-phase tombstones, and deletions that are known by mailbox and SHA-256"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_FILL = """
    UPDATE message_copies c SET deleted_sha256 = m.sha256 FROM messages m
    WHERE m.id = c.message_id AND c.deleted_at IS NOT NULL"""
# What is not known by now stands in the tombstones of the packs, where it is looked up at the next start.
_STATE = """
    INSERT INTO archive_state (knows_deletions) SELECT NOT EXISTS (
        SELECT 1 FROM message_copies WHERE deleted_at IS NOT NULL AND deleted_sha256 IS NULL)"""


def upgrade() -> None:
    op.execute("CREATE SEQUENCE journal_numbers")
    op.create_table(
        "archive_state",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("archive_id", sa.UUID(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("knows_deletions", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_archive_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archive_state")),
    )
    _tombstones()
    for table in ("sync_session_mailboxes", "sync_runs"):
        op.add_column(table, sa.Column("deleted_here", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("message_copies", sa.Column("deleted_sha256", sa.LargeBinary(), nullable=True))
    op.execute(_FILL)
    op.create_index(
        "ix_message_copies_deleted",
        "message_copies",
        ["mailbox_id", "deleted_sha256"],
        postgresql_where=sa.text("deleted_sha256 IS NOT NULL"),
    )
    op.execute(_STATE)


def _tombstones() -> None:
    op.create_table(
        "tombstones",
        sa.Column("id", sa.UUID(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("copies", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
    )
    op.create_index(
        "ix_tombstones_unconfirmed", "tombstones", ["id"], unique=False, postgresql_where=sa.text("confirmed_at IS NULL")
    )
