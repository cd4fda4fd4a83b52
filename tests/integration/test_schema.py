"""Migrations on a real PostgreSQL: from nothing, again, by many at once, and the models beside them."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, inspect, text

from archiver.db import driver_url, make_engine
from archiver.errors import SchemaError
from archiver.models import Base
from archiver.services import schema
from archiver.stack.postgres import EmbeddedPostgres


def dump(postgres: EmbeddedPostgres, url: str) -> list[str]:
    """The schema as pg_dump writes it, without Alembic's own table, the random key of \\restrict and the order of columns."""
    command = [postgres.programs / "pg_dump", "--schema-only", "--no-owner", "--exclude-table=alembic_version", url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.rstrip(",") for line in output.splitlines() if line and not line.startswith(("--", "\\")))
    return sorted(lines)


def test_models_and_migrations_give_the_same_schema(
    postgres: EmbeddedPostgres, empty_database_url: str, database_url: str
) -> None:
    engine = create_engine(driver_url(empty_database_url))
    Base.metadata.create_all(engine)
    engine.dispose()
    by_models, by_migrations = dump(postgres, empty_database_url), dump(postgres, database_url)
    assert len(by_models) > 300
    assert by_models == by_migrations


def test_there_is_one_head_and_a_second_run_does_nothing(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url, "test")
    assert schema.migrate(engine)
    assert schema.migrate(engine) == ()
    schema.check(engine)
    with engine.connect() as connection:
        version = schema.schema_version(connection)
    assert version.current == version.wanted
    engine.dispose()


def test_ten_at_once_migrate_once(empty_database_url: str) -> None:
    def migrate(_: int) -> int:
        engine = make_engine(empty_database_url, "test")
        try:
            return len(schema.migrate(engine))
        finally:
            engine.dispose()

    with ThreadPoolExecutor(10) as pool:
        steps = sorted(pool.map(migrate, range(10)))
    assert steps[:9] == [0] * 9
    assert steps[9] >= 1


def test_an_unmigrated_database_is_refused_by_name(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url, "test")
    with pytest.raises(SchemaError, match="run `archiver migrate`"):
        schema.check(engine)
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    engine = make_engine(database_url, "test")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (schema.check, schema.migrate):
        with pytest.raises(SchemaError, match="'9999' of a newer version"):
            act(engine)
    engine.dispose()


def test_a_failing_step_leaves_nothing_behind(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url, "test")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE users (in_the_way int)"))
    with pytest.raises(Exception, match='relation "users" already exists'):
        schema.migrate(engine)
    assert inspect(engine).get_table_names() == ["users"]
    engine.dispose()
