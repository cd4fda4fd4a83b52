"""Rows of replaced packs stay and say when the file was removed, so that backups know which of their packs were replaced"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("packs", sa.Column("removed_at", sa.DateTime(timezone=True)))
