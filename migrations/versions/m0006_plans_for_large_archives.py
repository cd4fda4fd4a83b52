"""Copies refer to their message without a foreign key; indexes by folder only for those who ask for a folder"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # It looked for the message of each copy by itself, and locked it, which wrote each message a second time.
    op.drop_constraint("fk_message_copies_message_id", "message_copies", type_="foreignkey")
    # Postgres took them for keys, too, in mailboxes that its statistics did not know yet, and read all copies for each.
    for table in ("message_copies", "unaccounted_keys"):
        op.drop_index(f"ix_{table}_folder", table)
        op.create_index(f"ix_{table}_folder", table, ["mailbox_id", "folder"], postgresql_where=sa.text("folder IS NOT NULL"))
