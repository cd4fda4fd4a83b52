"""Recipients that a journal recorded"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "message_copies",
        sa.Column("recipients", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
    )
