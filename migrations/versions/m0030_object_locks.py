"""Until when packs are locked in their bucket"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("packs", sa.Column("locked_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("packs", sa.Column("lock_checked_at", sa.DateTime(timezone=True), nullable=True))
