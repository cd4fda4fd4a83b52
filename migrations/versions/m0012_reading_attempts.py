"""How often the process that read a message was not heard of again"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("index_leases", sa.Column("stage", sa.Text(), server_default=sa.text("'body'"), nullable=False))
    op.add_column("index_leases", sa.Column("reading", postgresql.ARRAY(sa.UUID()), nullable=True))
    op.create_table(
        "reading_attempts",
        sa.Column("message_id", sa.UUID(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_reading_attempts_message_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("message_id", "stage", name=op.f("pk_reading_attempts")),
    )
