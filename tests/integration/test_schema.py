"""Migrations on a real PostgreSQL: from nothing, again, by many at once, and the models beside them."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from archiver.db import driver_url, make_engine
from archiver.errors import SchemaError
from archiver.models import Base, message_uuid, uuid7
from archiver.services import schema
from archiver.services.adopt import adopt
from archiver.services.archive_state import last_stamp, rise_above
from archiver.services.delete import delete_message
from archiver.services.journal_loss import copies_without_journal
from archiver.services.snapshot import save_config
from archiver.stack.postgres import EmbeddedPostgres
from archiver.store.content import Memory
from archiver.store.encoder import Record
from archiver.store.frames import Kind
from archiver.store.journal import Stamp
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import World, set_up


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


def test_a_role_that_owns_nothing_can_store_delete_and_adopt(database_url: str, tmp_path: Path) -> None:
    """DATABASE_OWNER_URL: sequences and new tables are granted, too."""
    role = f"r_{uuid7().hex}"
    owner = make_engine(database_url, "test")
    with owner.begin() as connection:
        connection.execute(text(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'secret'"))
    schema.migrate(owner, role)
    set_up(owner)
    engine = create_engine(owner.url.set(username=role, password="secret"))
    world = World(engine, tmp_path / "packs")
    data = b"Subject: x\n\nbody"
    world.open().store_batch(world.origin(), Batch((RawMessage("k", data),)))
    save_config(engine, world.archive)
    assert delete_message(engine, world.archive, message_uuid(sha256(data).digest()), "asked for").copies == 1
    lonely = b"Subject: y\n\nbody"
    world.archive.append([Record(Kind.MESSAGE, sha256(lonely).digest(), Memory(lonely))])
    assert adopt(engine, world.archive, rest_seconds=0).found == 1
    assert copies_without_journal(engine, world.archive) == 0
    with engine.begin() as connection:
        rise_above(connection, Stamp(3, 5_000))
        assert last_stamp(connection) == Stamp(4, 5_000)
    world.close()
    owner.dispose()
