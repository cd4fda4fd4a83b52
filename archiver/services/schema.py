"""The database's schema: what it is, what this version of the program wants, and the way from one to the other."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.exc import OperationalError

from archiver.config import Settings
from archiver.db import driver_url, held_lock, make_engine
from archiver.errors import NotReady, SchemaError

_ADVISORY_LOCK = 0x6172636869766572  # "archiver" as a number
_WAIT_FOR_OTHERS_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_WAIT_FOR_TABLES = "30s"
_GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO {role}",
    "REVOKE UPDATE, DELETE ON audit_log FROM {role}",
    # a temporary table of the same name comes before ours wherever a statement does not say which one it means
    "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC, {role}",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC, {role}",
    "REVOKE ALL ON FUNCTION audit_log_chain() FROM PUBLIC",  # again: a restored dump comes without privileges
    "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    current: str | None
    wanted: str
    pending: tuple[str, ...]


def migrate_database(settings: Settings) -> tuple[str, ...]:
    """As the owner of the tables, for the role that the program works with."""
    assert settings.database_url is not None
    owner = settings.database_owner_url
    role = make_url(driver_url(settings.database_url.get_secret_value())).username if owner else None
    engine = make_engine((owner or settings.database_url).get_secret_value(), "migrate")
    try:
        return migrate(engine, role)
    finally:
        engine.dispose()


def pending_migrations(settings: Settings) -> tuple[str, ...]:
    if settings.database_url is None:
        raise NotReady("postgres is not running")
    engine = make_engine(settings.database_url.get_secret_value(), "health", pool_size=1)
    try:
        with connect(engine) as connection:
            return schema_version(connection).pending
    finally:
        engine.dispose()


def migrate(engine: Engine, role: str | None = None) -> tuple[str, ...]:
    """Brings the schema up to date; returns the steps taken. Of several processes at once one works and the others wait.

    `role`, if it is another than the owner, may work with all tables, and only read and append to the audit log.
    """
    with _alone(engine), connect(engine) as connection:
        version = schema_version(connection)
        if version.pending:
            event.listen(connection, "begin", _limit_waiting)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if role is not None:
            _grant(connection, role)
        return version.pending


def _grant(connection: Connection, role: str) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    database = connection.execute(text("SELECT current_database()")).scalar_one()
    for statement in _GRANTS:
        connection.execute(text(statement.format(role=quote(role), database=quote(database))))
    connection.commit()


def check(engine: Engine) -> None:
    """Raises SchemaError unless the schema is exactly the one that this version of the program works with."""
    with connect(engine) as connection:
        version = schema_version(connection)
    if version.pending:
        raise SchemaError(f"the database lacks {len(version.pending)} migration(s): run `archiver migrate`")


def schema_version(connection: Connection) -> SchemaVersion:
    """Raises SchemaError for a database that a newer version of the program has changed."""
    scripts = ScriptDirectory.from_config(_config())
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    steps = [script.revision for script in scripts.walk_revisions()]  # newest first
    if current is not None and current not in steps:
        raise SchemaError(f"the database has the schema {current!r} of a newer version of Archiver: update this program")
    pending = steps if current is None else steps[: steps.index(current)]
    return SchemaVersion(current, steps[0], tuple(reversed(pending)))


def connect(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except OperationalError as error:
        raise NotReady(f"postgres does not answer: {str(error.orig).strip().splitlines()[-1]}") from error


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Asks again and again instead of waiting in Postgres: an index that is built beside writers waits for every statement that
    began before it, and would wait for one that waits for us."""
    deadline = time.monotonic() + _WAIT_FOR_OTHERS_SECONDS
    connect(engine).close()
    while True:
        with held_lock(engine, _ADVISORY_LOCK) as got:
            if got:
                yield
                return
        if time.monotonic() > deadline:
            raise SchemaError(
                f"another process has been migrating the database for {_WAIT_FOR_OTHERS_SECONDS:.0f} s; try again later"
            )
        time.sleep(_LOOK_SECONDS)


def _limit_waiting(connection: Connection) -> None:
    """A step that waits for a table makes everybody wait who comes after it."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_FOR_TABLES}'")


def _config() -> Config:
    spec = importlib.util.find_spec("migrations")
    assert spec is not None
    assert spec.origin is not None
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    return config
