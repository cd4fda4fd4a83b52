"""The database schema: the version it has, the version this release needs, and the migrations in between."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, event, inspect, make_url, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from archiver.config import Settings
from archiver.db.engine import driver_url, held_lock, make_engine
from archiver.db.pause import paused_workers
from archiver.errors import NotReady, SchemaError, no_postgres
from archiver.quantity import quantity

if TYPE_CHECKING:  # takes long to load, and a schema that is up to date needs none of it
    from alembic.config import Config

_ADVISORY_LOCK = 0x6172636869766572  # "archiver" as a number
_WAIT_FOR_OTHERS_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_WAIT_FOR_TABLES = "30s"
_GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO {role}",
    "REVOKE UPDATE, DELETE ON audit_log FROM {role}",
    # a temporary table of the same name would take precedence over ours in unqualified statements
    "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC, {role}",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC, {role}",
    "REVOKE ALL ON FUNCTION audit_log_chain() FROM PUBLIC",  # repeated here, because a restored dump has no privileges
    "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
)


class NewerSchema(SchemaError):
    """A newer release has migrated this database."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    current: str | None
    wanted: str
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationStep:
    revision: str
    purpose: str
    pauses_workers: bool
    """It must not run beside workers; `migrate` pauses them for it (archiver.db.pause)."""


def migrate_database(settings: Settings, report: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """Migrates as the owner of the tables, and grants rights to the role that the program uses."""
    assert settings.database_url is not None
    owner = settings.database_owner_url
    app = make_url(driver_url(settings.database_url.get_secret_value()))
    engine = make_engine((owner or settings.database_url).get_secret_value(), "migrate")
    try:
        if owner is not None:
            create_missing_role(engine, app.username, app.password)
        return migrate(engine, app.username if owner else None, report)
    finally:
        engine.dispose()


def create_missing_role(engine: Engine, role: str | None, password: str | None) -> None:
    """The role of DATABASE_URL, if the server does not have it yet and we know its password: so a new server in a container
    needs no script of its own. A role that exists is never changed."""
    if role is None or password is None:
        return
    with connect(engine) as connection:
        if connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}).first():
            return
        native: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
        # hashed here: a statement can reach the server's log, and a password must not
        verifier = native.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier))
        try:
            native.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"the server has no role {role!r} (DATABASE_URL), and the role of DATABASE_OWNER_URL may not create it: "
                f"run CREATE ROLE {role} LOGIN PASSWORD '…' as an administrator of the server"
            ) from error
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            connection.rollback()  # another process was faster
        else:
            connection.commit()


def pending_migrations(settings: Settings) -> tuple[str, ...]:
    if settings.database_url is None:
        raise NotReady("postgres is not running")
    engine = make_engine(settings.database_url.get_secret_value(), "health", pool_size=1)
    try:
        with connect(engine) as connection:
            return schema_version(connection).pending
    finally:
        engine.dispose()


def describe_pending(settings: Settings) -> list[MigrationStep]:
    """The steps that `migrate` would take, and what each is for. Changes nothing."""
    return _steps(pending_migrations(settings))


def _steps(revisions: Sequence[str]) -> list[MigrationStep]:
    from alembic.script import ScriptDirectory

    scripts = [ScriptDirectory.from_config(_config()).get_revision(revision) for revision in revisions]
    return [
        MigrationStep(
            script.revision,
            (script.doc or "").strip().splitlines()[0],
            getattr(script.module, "pauses_workers", False),
        )
        for script in scripts
    ]


def migrate(engine: Engine, role: str | None = None, report: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """Migrates the schema and returns the applied steps. Of several concurrent processes, one works and the others wait.

    `role`, if it is not the owner, gets read and write access to all tables, but may only read and append to the audit log.
    """
    with _exclusive(engine), connect(engine) as connection:
        version = schema_version(connection)
        if version.pending:
            from alembic import command

            event.listen(connection, "begin", _limit_waiting)
            config = _config()
            config.attributes["connection"] = connection
            with _workers_as_needed(engine, version.pending, report):
                command.upgrade(config, "head")
        if role is not None:
            _grant(connection, role)
        return version.pending


def _workers_as_needed(engine: Engine, pending: Sequence[str], report: Callable[[str], None]) -> AbstractContextManager[None]:
    """Pauses the workers if a step asks for it. A release that has no table for it yet has no worker that would look there."""
    needing = [step.revision for step in _steps(pending) if step.pauses_workers]
    if not needing or not inspect(engine).has_table("worker_pause"):
        return nullcontext()
    return paused_workers(engine, f"the database is being migrated ({', '.join(needing)})", report)


def _grant(connection: Connection, role: str) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    database = connection.execute(text("SELECT current_database()")).scalar_one()
    for statement in _GRANTS:
        connection.execute(text(statement.format(role=quote(role), database=quote(database))))
    connection.commit()


def check(engine: Engine, *, accepts_newer: bool = False) -> None:
    """Raises SchemaError unless the schema is exactly the one that this release needs.

    `accepts_newer` is for a worker that was working before a migration, and goes on after it: migrations only add.
    """
    with connect(engine) as connection:
        if _is_newest(connection):
            return
        try:
            version = schema_version(connection)
        except NewerSchema:
            if accepts_newer:
                return
            raise
    if version.pending:
        raise SchemaError(f"the database is missing {quantity(len(version.pending), 'migration')}: run `archiver migrate`")


def _is_newest(connection: Connection) -> bool:
    """Without Alembic: the files of the migrations are called after their revisions."""
    newest = max(path.name[1:5] for path in (_folder() / "versions").glob("m[0-9][0-9][0-9][0-9]_*.py"))
    try:
        current = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    except ProgrammingError:  # there is no such table yet
        current = []
    connection.rollback()
    return current == [newest]


def schema_version(connection: Connection) -> SchemaVersion:
    """Raises SchemaError for a database that a newer release has migrated."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config())
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    steps = [script.revision for script in scripts.walk_revisions()]  # newest first
    if current is not None and current not in steps:
        raise NewerSchema(f"the database has schema {current!r} of a newer release of Archiver: update this installation")
    pending = steps if current is None else steps[: steps.index(current)]
    return SchemaVersion(current, steps[0], tuple(reversed(pending)))


def connect(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except OperationalError as error:
        raise no_postgres(error.orig or error) from error


@contextmanager
def _exclusive(engine: Engine) -> Iterator[None]:
    """Polls instead of waiting inside Postgres: a concurrent index build waits for every statement that started before it, and
    would deadlock with a statement that waits for us."""
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
    """A migration that waits for a table lock blocks every later statement on that table."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_FOR_TABLES}'")


def _folder() -> Path:
    spec = importlib.util.find_spec("migrations")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    return config
