"""Which rules all threads follow, and how far the job that applies newer ones has come"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# An archive without mail follows the rules of this release from its first message on.
_NEW_ARCHIVE = "INSERT INTO thread_rules (version) SELECT CASE WHEN EXISTS (SELECT 1 FROM messages) THEN 1 ELSE 2 END"


def upgrade() -> None:
    op.create_table(
        "thread_rules",
        sa.Column("id", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), server_default=sa.text("'subjects'"), nullable=False),
        sa.Column("cursor", sa.UUID(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_thread_rules_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread_rules")),
    )
    op.execute(_NEW_ARCHIVE)
