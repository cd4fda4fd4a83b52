"""Connections to Postgres."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import orjson
import psycopg
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError

from archiver.date_range import END, FIRST

Database = Engine
"""For those who pass it on and write no SQL themselves."""

_CONNECT_SECONDS = 10
_FROZEN_SECONDS = 300
"""A process that stands still inside a transaction loses it after this time, and with it the locks that others wait for."""
_FRESH_SECONDS = 1.0
"""A connection that was used so short a time ago is taken without asking the server whether it is still there."""
_LOOKS_FOR_POOLER = 3
_AWAY_STATES = ("08", "57P")
"""SQLSTATE classes of a server that is leaving, gone, or not there yet."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What Postgres cannot hold in a text: NUL, and halves of surrogate pairs."""


def make_engine(url: str, name: str, *, pool_size: int = 5, keep_plans: bool = False) -> Engine:
    """`name` is what pg_stat_activity shows. Connections that rested are checked before use, so that a restarted Postgres is no
    error.

    `keep_plans` is for many small statements, of which planning is the larger part: the server may plan them once. Whoever
    fills a table must not: a plan made while it was empty would be kept until the server has counted its rows.
    """
    engine = create_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=pool_size,
        hide_parameters=True,  # errors end up in logs, and parameters are mail
        connect_args={
            "application_name": f"archiver-{name}",
            "connect_timeout": _CONNECT_SECONDS,
            "options": f"-c timezone=UTC -c plan_cache_mode={'auto' if keep_plans else 'force_custom_plan'}"
            f" -c idle_in_transaction_session_timeout={_FROZEN_SECONDS * 1000}",
            "keepalives_idle": 60,
            "tcp_user_timeout": 30_000,
        },
    )
    event.listen(engine, "connect", _connected)
    event.listen(engine, "connect", _reads_all_dates)
    event.listen(engine, "checkin", _rests)
    event.listen(engine, "checkout", _wakes)
    return engine


@contextmanager
def autocommit(engine: Engine) -> Iterator[Connection]:
    """For statements that stand on their own, such as those that only read: each is a transaction by itself, which saves the
    two trips to the server that begin and end one."""
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextmanager
def held_lock(engine: Engine, key: str | int) -> Iterator[bool]:
    """Holds a Postgres advisory lock for the block, on a connection of its own; yields False if another process holds it.

    The lock belongs to a transaction, not to a session: behind a pooler that shares connections between transactions, a
    session's lock would be left with whoever comes next. The transaction does nothing else, and holds up no vacuum.
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
    """Whether there is a pooler that shares connections between transactions: two open ones are the same in Postgres."""
    pid = text("SELECT pg_backend_pid()")
    with autocommit(engine) as one, autocommit(engine) as other:
        return any(one.execute(pid).scalar() == other.execute(pid).scalar() for _ in range(_LOOKS_FOR_POOLER))


def is_away(error: BaseException) -> bool:
    """The server is leaving, gone, or not there yet: no statement is to blame."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, psycopg.Error):
        return False
    if cause.sqlstate is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    return cause.sqlstate.startswith(_AWAY_STATES)


def clean(value: Any) -> Any:
    """The value with U+FFFD for each character that Postgres cannot store, in texts, lists, and keys and values of mappings."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, tuple):
        return tuple(clean(item) for item in value)
    return value


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """A JSON parameter that Postgres accepts, whatever texts it holds. `default` is orjson's."""
    try:
        data = orjson.dumps(value, default)
    except TypeError:  # lone surrogates
        data = orjson.dumps(clean(value), default)
    if b"\\u0000" in data:
        data = orjson.dumps(clean(value), default)
    return data.decode()


class _CleanDumper(StrDumperUnknown):
    """The border to Postgres for every text parameter: one bad character in a reason or a name must not fail a statement."""

    def dump(self, obj: str) -> Any:
        try:
            return super().dump(obj)
        except (psycopg.DataError, UnicodeEncodeError):
            return super().dump(clean(obj))


def _connected(connection: Any, _record: Any) -> None:
    """Behind a pooler, which names itself instead of the server's process, no statement is prepared: the next one may meet
    another process."""
    connection.adapters.register_dumper(str, _CleanDumper)
    if connection.execute("SELECT pg_backend_pid()").fetchone()[0] != connection.info.backend_pid:
        connection.prepare_threshold = None
    connection.rollback()


def _rests(_connection: Any, record: Any) -> None:
    record.info["rests_since"] = time.monotonic()


def _wakes(connection: Any, record: Any, _proxy: Any) -> None:
    if time.monotonic() - record.info.get("rests_since", 0.0) < _FRESH_SECONDS:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error as error:
        raise DisconnectionError from error  # the pool tries another one


class TolerantTimestamps(TimestamptzLoader):
    """A row with a date that Python can't hold must not stop all others: it is read as the end of the range that it is beyond.

    No constraint keeps `infinity`, the year 10000 or one before Christ out of a table that somebody else has filled.
    """

    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            return FIRST if text.startswith(b"-") or text.endswith(b"BC") else END - timedelta(seconds=1)


def _reads_all_dates(connection: psycopg.Connection[Any], _record: Any) -> None:
    connection.adapters.register_loader("timestamptz", TolerantTimestamps)


def driver_url(url: str) -> str:
    """SQLAlchemy wants the driver named; people write the address as libpq knows it."""
    scheme, _, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
