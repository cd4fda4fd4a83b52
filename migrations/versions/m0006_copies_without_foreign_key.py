"""Copies refer to their message without a foreign key"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # It looked for the message of each copy by itself, and locked it, which wrote each message a second time.
    op.drop_constraint("fk_message_copies_message_id", "message_copies", type_="foreignkey")
