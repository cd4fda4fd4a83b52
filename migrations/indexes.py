"""Indexes on tables that are in use: built beside their writers (CREATE INDEX CONCURRENTLY).

Each of these commits, so they come first in a step, and whatever comes before them can be repeated: a step that was
interrupted runs again from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

Columns = Sequence[str | sa.ColumnClause[str]]


def create(name: str, table: str, columns: Columns, where: str | None = None, *, unique: bool = False) -> None:
    """A build that was interrupted leaves an invalid index, which is dropped first."""
    condition = sa.text(where) if where else None
    with op.get_context().autocommit_block():
        _drop_invalid(name)
        op.create_index(
            name,
            table,
            list(columns),
            unique=unique,
            postgresql_where=condition,
            postgresql_concurrently=True,
            if_not_exists=True,
        )


def replace(name: str, table: str, columns: Columns, where: str | None = None) -> None:
    """The old one serves until the new one can."""
    new = f"{name}_new"
    with op.get_context().autocommit_block():
        _drop_invalid(new)
    create(new, table, columns, where)
    drop(name, table)
    op.execute(f"ALTER INDEX IF EXISTS {new} RENAME TO {name}")


def drop(name: str, table: str) -> None:
    with op.get_context().autocommit_block():
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)


def _drop_invalid(name: str) -> None:
    found = op.get_bind().execute(
        sa.text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid"), {"name": name}
    )
    if found.first() is not None:
        op.execute(f"DROP INDEX CONCURRENTLY {name}")
