"""Connections to Postgres."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine

_CONNECT_SECONDS = 10
_FROZEN_SECONDS = 300
"""A process that stands still inside a transaction loses it after this time, and with it the locks that others wait for."""


def make_engine(url: str, name: str, *, pool_size: int = 5) -> Engine:
    """`name` is what pg_stat_activity shows. Connections are checked before use, so that a restarted Postgres is no error."""
    return create_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        hide_parameters=True,  # errors end up in logs, and parameters are mail
        connect_args={
            "application_name": f"archiver-{name}",
            "connect_timeout": _CONNECT_SECONDS,
            "options": f"-c timezone=UTC -c idle_in_transaction_session_timeout={_FROZEN_SECONDS * 1000}",
            "keepalives_idle": 60,
            "tcp_user_timeout": 30_000,
        },
    )


def driver_url(url: str) -> str:
    """SQLAlchemy wants the driver named; people write the address as libpq knows it."""
    scheme, _, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else url
