"""Indexes for what is asked in large archives; copies refer to their message without a foreign key"""

import sqlalchemy as sa
from alembic import op

from migrations import indexes

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Postgres took them for keys, too, in mailboxes that its statistics did not know yet, and read all copies for each.
    for table in ("message_copies", "unaccounted_keys"):
        indexes.replace(f"ix_{table}_folder", table, ["mailbox_id", "folder"], where="folder IS NOT NULL")
    # In the order of bytes, whatever the language of the database: only then it helps to find how an address begins.
    indexes.replace("ix_participants_address", "participants", [sa.literal_column('left(address, 320) COLLATE "C"'), "role"])
    indexes.create("ix_message_copies_labelled", "message_copies", ["mailbox_id"], where="labels <> '{}'")
    indexes.create("ix_objects_dictionaries", "objects", ["pack_id", "position"], where="kind = 'dictionary'")
    # It looked for the message of each copy by itself, and locked it, which wrote each message a second time.
    op.drop_constraint("fk_message_copies_message_id", "message_copies", type_="foreignkey")
