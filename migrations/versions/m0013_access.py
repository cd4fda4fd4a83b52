"""API keys expire, exports know whose mail they hold, messages when their document was sent"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("exports", sa.Column("scope", postgresql.JSONB(), nullable=True))
    op.add_column("messages", sa.Column("indexed_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE api_keys SET expires_at = now() + interval '1 year' WHERE expires_at IS NULL AND revoked_at IS NULL")
