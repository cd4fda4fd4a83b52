"""Migrations on a real PostgreSQL: from nothing, again, by many at once, and the models beside them."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from archiver.config import load_settings
from archiver.db import schema
from archiver.db.engine import driver_url, make_engine
from archiver.db.tables import Base, message_uuid, uuid7
from archiver.errors import SchemaError
from archiver.maintenance.recovery.adopt import adopt
from archiver.maintenance.recovery.journal_loss import copies_without_journal
from archiver.maintenance.snapshot import save_config
from archiver.retention.delete import delete_message
from archiver.store.content import MemoryContent
from archiver.store.encoder import Record
from archiver.store.frames import FrameKind
from archiver.store.journal import Stamp
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.sync.ingest.archive_state import last_stamp, rise_above
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import World, set_up
from tests.support.waiting import DEADLINE_SECONDS, eventually


def dump(postgres: EmbeddedPostgres, url: str) -> list[str]:
    """The schema as pg_dump writes it, without Alembic's own table, the random key of \\restrict and the order of columns."""
    command = [str(postgres.programs / "pg_dump"), "--schema-only", "--no-owner", "--exclude-table=alembic_version", url]
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
        with pytest.raises(SchemaError, match="'9999' of a newer release"):
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


def _migrated_to(url: str, revision: str) -> Engine:
    engine = make_engine(url, "test")
    with engine.connect() as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return engine


def test_a_build_of_an_index_that_was_interrupted_is_repeated(empty_database_url: str) -> None:
    engine = _migrated_to(empty_database_url, "0005")
    with engine.begin() as connection:
        connection.execute(text("CREATE INDEX ix_objects_dictionaries ON objects (position)"))
        connection.execute(text("CREATE INDEX ix_message_copies_folder_new ON message_copies (folder)"))
        interrupted = "('ix_objects_dictionaries'::regclass, 'ix_message_copies_folder_new'::regclass)"
        connection.execute(text(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid IN {interrupted}"))
    assert schema.migrate(engine)[0] == "0006"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM pg_index WHERE NOT indisvalid")).scalar_one() == 0
        columns = "SELECT pg_get_indexdef('ix_objects_dictionaries'::regclass)"
        assert "(pack_id, " in connection.execute(text(columns)).scalar_one()
    engine.dispose()


@pytest.mark.parametrize(("before", "first"), [("0002", "CREATE TABLE"), ("0004", "CREATE TABLE"), ("0005", "ALTER TABLE")])
def test_a_step_that_was_interrupted_at_its_end_is_repeated(empty_database_url: str, before: str, first: str) -> None:
    """Everything of the step that commits by itself was done, and the rest, of which `first` is the first command, was not."""
    engine = _migrated_to(empty_database_url, before)
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'killed'; END $$;"
                f"CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('{first}') EXECUTE FUNCTION refuse()"
            )
        )
    with pytest.raises(DBAPIError, match="killed"):
        schema.migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP EVENT TRIGGER refuse; DROP FUNCTION refuse"))
    with engine.connect() as connection:
        assert schema.schema_version(connection).current == before
    assert schema.migrate(engine)
    engine.dispose()


def test_writers_go_on_while_an_index_waits_for_the_transactions_before_it(empty_database_url: str) -> None:
    engine = _migrated_to(empty_database_url, "0005")
    add = text("INSERT INTO objects VALUES (sha256(:n), 'message', gen_random_uuid(), 0, 0, 0)")
    waiting = text("SELECT 1 FROM pg_stat_activity WHERE query ILIKE '%CONCURRENTLY%' AND wait_event_type = 'Lock'")
    with engine.connect() as before, ThreadPoolExecutor(1) as pool:
        before.execute(add, {"n": b"before"})
        migrating = pool.submit(schema.migrate, engine)
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as looking:
            eventually(lambda: looking.execute(waiting).first(), what="a migration that waits", pause=0.01)
        with engine.begin() as writer:
            writer.execute(text("SET LOCAL lock_timeout = '5s'"))
            writer.execute(add, {"n": b"meanwhile"})
        assert not migrating.done()
        before.commit()
        assert migrating.result(timeout=DEADLINE_SECONDS)
    engine.dispose()


def test_many_wait_for_one_that_builds_indexes(empty_database_url: str) -> None:
    """Whoever waits must not be waited for by the build."""
    engine = _migrated_to(empty_database_url, "0005")
    with ThreadPoolExecutor(4) as pool:
        steps = sorted(len(done) for done in pool.map(lambda _: schema.migrate(engine), range(4)))
    assert steps[:3] == [0, 0, 0]
    assert steps[3] >= 1
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
    world.archive.append([Record(FrameKind.MESSAGE, sha256(lonely).digest(), MemoryContent(lonely))])
    assert adopt(engine, world.archive, rest_seconds=0).found == 1
    assert copies_without_journal(engine, world.archive) == 0
    with engine.begin() as connection:
        rise_above(connection, Stamp(3, 5_000))
        assert last_stamp(connection) == Stamp(4, 5_000)
    world.close()
    owner.dispose()


def test_a_missing_role_is_created_once_and_can_not_touch_the_audit_log(empty_database_url: str) -> None:
    """As in containers: the server knows its owner only, and `archiver migrate` knows both passwords."""
    role, password = f"r_{uuid7().hex}", "pass'word:%/@\\"
    app = make_url(empty_database_url).set(username=role, password=password)
    given = {"DATABASE_OWNER_URL": empty_database_url, "DATABASE_URL": app.render_as_string(hide_password=False)}
    settings = load_settings(given, Path("none"))
    assert schema.migrate_database(settings)
    assert schema.migrate_database(settings) == ()
    engine = make_engine(given["DATABASE_URL"], "test")
    with engine.connect() as connection:
        connection.execute(text("SELECT count(*) FROM audit_log"))
        with pytest.raises(ProgrammingError, match="permission denied"):
            connection.execute(text("DELETE FROM audit_log"))
    engine.dispose()
    changed = app.set(password="another").render_as_string(hide_password=False)
    schema.migrate_database(load_settings({**given, "DATABASE_URL": changed}, Path("none")))
    psycopg.connect(given["DATABASE_URL"]).close()  # a role that exists keeps its password


def test_an_owner_that_may_not_create_roles_says_what_to_do(empty_database_url: str) -> None:
    owner = f"o_{uuid7().hex}"
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {owner} LOGIN PASSWORD 'secret'")
    url = make_url(empty_database_url).set(username=owner, password="secret")
    app = url.set(username="nobody_yet").render_as_string(hide_password=False)
    given = {"DATABASE_OWNER_URL": url.render_as_string(hide_password=False), "DATABASE_URL": app}
    with pytest.raises(SchemaError, match="CREATE ROLE nobody_yet LOGIN"):
        schema.migrate_database(load_settings(given, Path("none")))


def test_a_plan_names_the_steps_and_takes_none(empty_database_url: str) -> None:
    engine = _migrated_to(empty_database_url, "0006")
    settings = load_settings({"DATABASE_URL": empty_database_url}, Path("none"))
    planned = schema.describe_pending(settings)
    revisions = tuple(step.revision for step in planned)
    assert revisions[0] == "0007"
    assert all(step.purpose for step in planned), "each step says what it is for"
    assert schema.pending_migrations(settings) == revisions, "nothing was changed"
    assert schema.migrate_database(settings) == revisions
    assert schema.describe_pending(settings) == []
    engine.dispose()
