"""Rows that Postgres returns but Python can't represent. One of them must not prevent reading the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import DataError

from archiver.db.sql import query
from archiver.logs import get_logger

log = get_logger("rows")
T = TypeVar("T")
UNREADABLE = (DataError, ValueError, OverflowError)
"""Raised when a value can't be represented in Python."""


@dataclass(frozen=True, slots=True)
class PoisonRow:
    """What is known about an unreadable row."""

    id: UUID
    version: int
    reason: str


def one_by_one(keys: Iterable[tuple[UUID, int]], read: Callable[[UUID], Sequence[T]]) -> tuple[list[T], list[PoisonRow]]:
    """The readable rows, and the unreadable ones. `read` returns one row, or none if it is gone."""
    rows: list[T] = []
    poison: list[PoisonRow] = []
    for row_id, version in keys:
        try:
            rows += read(row_id)
        except UNREADABLE as error:
            log.exception("row_unreadable", id=str(row_id))
            poison.append(PoisonRow(row_id, version, f"its row in the database can't be read: {_describe(error)}"))
    return rows, poison


def _describe(error: Exception) -> str:
    cause = error.orig if isinstance(error, DataError) else error
    return f"{type(cause).__name__}: {cause}"[:200]


class VersionedRow(NamedTuple):
    id: UUID
    version: int


def read_rows(
    connection: Connection,
    statement: str,
    alone: str,
    row: type[T],
    give_up: Callable[[list[PoisonRow]], object],
    **parameters: Any,
) -> list[T]:
    """The rows of `statement`, which has the columns `id` and `version`; `alone` selects a single row by its `id`.

    Unreadable rows are passed to `give_up`, which must ensure that the statement does not return them again.
    """
    while True:
        try:
            return query(connection, statement, row, **parameters)
        except UNREADABLE:
            keys = query(connection, f"SELECT id, version FROM ({statement}) AS found", VersionedRow, **parameters)  # noqa: S608
        rows, poison = one_by_one(keys, lambda row_id: query(connection, alone, row, **{**parameters, "id": row_id}))
        if not poison:
            return rows
        give_up(poison)
        if rows:
            return rows
