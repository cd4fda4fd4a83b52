"""Indexes for what is asked in large archives; copies refer to their message without a foreign key"""

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
        _replace(f"ix_{table}_folder", table, ["mailbox_id", "folder"], where="folder IS NOT NULL")
    # In the order of bytes, whatever the language of the database: only then it helps to find how an address begins.
    _replace("ix_participants_address", "participants", [sa.literal_column('left(address, 320) COLLATE "C"'), "role"])
    _create("ix_message_copies_labelled", "message_copies", ["mailbox_id"], where="labels <> '{}'")
    _create("ix_objects_dictionaries", "objects", ["pack_id", "position"], where="kind = 'dictionary'")


def _replace(name: str, table: str, columns: list[str | sa.ColumnClause[str]], where: str | None = None) -> None:
    op.drop_index(name, table)
    _create(name, table, columns, where)


def _create(name: str, table: str, columns: list[str | sa.ColumnClause[str]], where: str | None = None) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where) if where else None)
