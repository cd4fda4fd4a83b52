"""Runs SQL: statements with named parameters in, typed rows out.

A parameter is written `:name` and passed by keyword. The rows of a bulk statement travel as one JSON document: one parameter,
one round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from archiver.db.row_types import Column, fit
from archiver.db.values import Json, json_bytes

T = TypeVar("T")

_PARAMETER = re.compile(r"(?<![:\w]):([a-zA-Z_]\w*)")
"""Not the cast in `x::text`, and not a colon inside a word, such as '00:00'."""


@lru_cache(maxsize=2048)
def driver_form(statement: str) -> str:
    """The statement as psycopg takes it."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def run(connection: Connection, statement: str, /, **parameters: Any) -> int:
    """The number of rows that the statement added, changed or deleted."""
    return connection.exec_driver_sql(driver_form(statement), parameters).rowcount


def query(connection: Connection, statement: str, row: type[T], /, **parameters: Any) -> list[T]:
    """The rows of the statement. `row` is a frozen dataclass with a field for each column, or the type of the only column.

    The first result of a statement is checked: RowMismatch names the fields and the columns that do not fit.
    """
    result = connection.exec_driver_sql(driver_form(statement), parameters)
    make = fit(statement, row, lambda: _columns(result.cursor))
    return make(result.all())


def query_one(connection: Connection, statement: str, row: type[T], /, **parameters: Any) -> T:
    """For a statement that returns exactly one row, whatever the data."""
    (found,) = query(connection, statement, row, **parameters)
    return found


def query_optional(connection: Connection, statement: str, row: type[T], /, **parameters: Any) -> T | None:
    """The first row, or None."""
    found = query(connection, statement, row, **parameters)
    return found[0] if found else None


def _columns(cursor: Any) -> list[Column]:
    return [Column(one.name, one.type_code) for one in cursor.description]


@dataclass(frozen=True, slots=True)
class SentStatement:
    """A statement in a pipeline, whose rows can be fetched later."""

    statement: str
    cursor: psycopg.Cursor[Any]


Sent = list[SentStatement]


class Pipeline:
    """Sends the statements of a batch without waiting for each result: Postgres inserts while we compress.

    It works inside the transaction of `connection`; nothing takes effect before that commits.
    """

    def __init__(self, connection: Connection, **common: Any) -> None:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        self._raw = raw
        self._common = common
        self._sent: Sent = []

    def __enter__(self) -> Pipeline:
        self._context = self._raw.pipeline()
        self._context.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._context.__exit__(kind, error, trace)
        except psycopg.Error as failure:
            if error is None:
                raise _translate(failure) from failure

    def send(self, statement: str, /, **parameters: Any) -> SentStatement:
        """Queues a statement; its rows are fetched later, or not at all."""
        cursor = self._raw.cursor()
        try:
            cursor.execute(driver_form(statement).encode(), {**self._common, **parameters})
        except psycopg.Error as failure:
            raise _translate(failure) from failure
        sent = SentStatement(statement, cursor)
        self._sent.append(sent)  # a cursor that is garbage-collected would lose its result
        return sent

    def ask(self, statement: str, row: type[T], /, **parameters: Any) -> list[T]:
        return self.fetch(self.send(statement, **parameters), row)

    def count(self, sent: Iterable[SentStatement]) -> int:
        """Of the rows of all these statements, which can be fetched afterwards."""
        return sum(self._count(one.cursor) for one in sent)

    def _count(self, cursor: psycopg.Cursor[Any]) -> int:
        try:
            if cursor.fetchone() is not None:
                cursor.scroll(0, "absolute")
        except psycopg.Error as failure:
            raise _translate(failure) from failure
        return cursor.rowcount

    def fetch(self, sent: SentStatement, row: type[T]) -> list[T]:
        try:
            found = sent.cursor.fetchall()
        except psycopg.Error as failure:
            raise _translate(failure) from failure
        return fit(sent.statement, row, lambda: _columns(sent.cursor))(found)


def _translate(failure: psycopg.Error) -> DBAPIError:
    """Wraps the error as SQLAlchemy would, so that callers handle one family of errors."""
    lost = isinstance(failure, psycopg.OperationalError | psycopg.InterfaceError)
    return (OperationalError if lost else DBAPIError)("a batch", None, failure)


def hashes(found: Iterable[bytes]) -> str:
    """A list of SHA-256 values as one parameter; Python builds an array of bytea far more slowly."""
    return ",".join(item.hex() for item in sorted(found))


def uuids(found: Iterable[UUID | str]) -> str:
    """A list of ids, or of their hex digits, as one parameter, to be cast to uuid[]."""
    return f"{{{','.join(sorted(one if isinstance(one, str) else one.hex for one in found))}}}"


def rows(items: Sequence[Any] | Mapping[str, Any]) -> Json:
    """The parameter of json_to_recordset. Text that Postgres can't store (NUL, lone surrogates) becomes U+FFFD: the original
    bytes are in the archive."""
    return json_bytes(items)
