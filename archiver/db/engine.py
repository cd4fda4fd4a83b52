"""Connections to Postgres."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError

from archiver.date_range import END, FIRST
from archiver.db.values import Json, clean

Database = Engine
"""For modules that pass a connection on without writing SQL themselves."""

DATABASE_ERRORS = (psycopg.Error, DBAPIError)

_CONNECT_SECONDS = 10
_FROZEN_SECONDS = 300
"""A process that hangs inside a transaction loses it after this time, and with it the locks that others wait for."""
_FRESH_SECONDS = 1.0
"""A connection that was used this recently is reused without checking that the server still has it."""
_LOOKS_FOR_POOLER = 3
_AWAY_STATES = ("08", "57P")
"""SQLSTATE classes of a server that is shutting down, gone, or still starting."""


def make_engine(url: str, name: str, *, pool_size: int = 5, keep_plans: bool = False) -> Engine:
    """`name` appears in pg_stat_activity. Idle connections are checked before use, so that a restart of Postgres is not an
    error.

    `keep_plans` is for many small statements whose cost is mostly planning: the server may reuse their plans. A process that
    fills a table must not use it: a plan made for an empty table would be reused until the server has analysed it.
    """
    engine = create_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=pool_size,
        hide_parameters=True,  # errors are logged, and parameters contain mail
        connect_args={
            "application_name": f"archiver-{name}",
            "connect_timeout": _CONNECT_SECONDS,
            "options": f"-c timezone=UTC -c plan_cache_mode={'auto' if keep_plans else 'force_custom_plan'}"
            f" -c idle_in_transaction_session_timeout={_FROZEN_SECONDS * 1000}",
            "keepalives_idle": 60,
            "tcp_user_timeout": 30_000,
        },
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "connect", _load_all_dates)
    event.listen(engine, "checkin", _on_checkin)
    event.listen(engine, "checkout", _on_checkout)
    return engine


@contextmanager
def autocommit(engine: Engine) -> Iterator[Connection]:
    """For independent statements, such as plain reads: each is a transaction of its own, which saves the two round trips that
    begin and end one."""
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def held_lock(engine: Engine, key: str | int) -> Iterator[bool]:
    """Holds a Postgres advisory lock for the block, on a connection of its own; yields False if another process holds it.

    The lock belongs to a transaction, not to a session: behind a pooler that shares connections between transactions, the next
    client would inherit a session's lock. The transaction does nothing else, and does not delay vacuum.
    """
    number = "hashtextextended(:key, 0)" if isinstance(key, str) else ":key"
    with engine.connect() as connection:
        got = bool(connection.execute(text(f"SELECT pg_try_advisory_xact_lock({number})"), {"key": key}).scalar())
        if got:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        else:
            connection.rollback()
        yield got


def shares_connections(engine: Engine) -> bool:
    """Whether a pooler shares connections between transactions: then two open connections have the same backend process."""
    pid = text("SELECT pg_backend_pid()")
    with autocommit(engine) as one, autocommit(engine) as other:
        return any(one.execute(pid).scalar() == other.execute(pid).scalar() for _ in range(_LOOKS_FOR_POOLER))


def is_answering(engine: Engine) -> bool:
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except DBAPIError:
        return False
    return True


def is_away(error: BaseException) -> bool:
    """The server is shutting down, gone, or still starting: no statement is to blame."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, psycopg.Error):
        return False
    if cause.sqlstate is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    return cause.sqlstate.startswith(_AWAY_STATES)


class _CleanDumper(StrDumperUnknown):
    """Cleans every text parameter: one bad character in a reason or a name must not fail a statement."""

    def dump(self, obj: str) -> Any:
        try:
            return super().dump(obj)
        except (psycopg.DataError, UnicodeEncodeError):
            return super().dump(clean(obj))


class _JsonDumper(Dumper):
    def dump(self, obj: Json) -> bytes:
        return obj.data


psycopg.adapters.register_dumper(Json, _JsonDumper)  # for all connections: no other code has this type


def _on_connect(connection: Any, _record: Any) -> None:
    """Behind a pooler, which reports itself instead of the server process, no statement is prepared: the next one may run in
    another process."""
    connection.adapters.register_dumper(str, _CleanDumper)
    if connection.execute("SELECT pg_backend_pid()").fetchone()[0] != connection.info.backend_pid:
        connection.prepare_threshold = None
    connection.rollback()


def _on_checkin(_connection: Any, record: Any) -> None:
    record.info["rests_since"] = time.monotonic()


def _on_checkout(connection: Any, record: Any, _proxy: Any) -> None:
    if time.monotonic() - record.info.get("rests_since", 0.0) < _FRESH_SECONDS:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error as error:
        raise DisconnectionError from error  # the pool tries another connection


class TolerantTimestamps(TimestamptzLoader):
    """A date that Python can't represent must not make other rows unreadable: it is read as the nearest date that Python has.

    No constraint prevents `infinity`, the year 10000 or a year BC in a table that another program has filled.
    """

    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return FIRST if text.startswith(b"-") or text.endswith(b"BC") else END - timedelta(seconds=1)


def _load_all_dates(connection: psycopg.Connection[Any], _record: Any) -> None:
    connection.adapters.register_loader("timestamptz", TolerantTimestamps)


def driver_url(url: str) -> str:
    """Adds the driver that SQLAlchemy requires to an address in libpq's form."""
    scheme, _, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
