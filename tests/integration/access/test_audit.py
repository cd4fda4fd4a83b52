"""The audit log: chained, append-only for every role, and honest about what was done to it."""

from __future__ import annotations

import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from sqlalchemy import Engine, text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR
from archiver.db import schema
from archiver.db.engine import driver_url, make_engine
from archiver.db.tables import uuid7
from archiver.errors import NotReady
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.sync import ledger
from tests.support.waiting import DEADLINE_SECONDS, eventually

WHO = dataclasses.replace(LOCAL_OPERATOR, name="alice@example.org", client_address="192.0.2.1", request_id="r1")


def write(engine: Engine, count: int = 5) -> None:
    for number in range(count):
        with engine.begin() as connection:
            audit.record(connection, WHO, "message.read", "message", number, query="caf\u00e9 \0 \ud800", nested={"a": [1, 2]})


def test_entries_are_chained_and_verified(engine: Engine) -> None:
    write(engine)
    done = audit.verify(engine)
    assert (done.entries, done.broken) == (5, ())
    assert done.head.startswith("5:")
    with engine.connect() as connection:
        newest = audit.list_entries(connection, limit=1)[0]
    assert (newest.id, newest.actor, newest.action, newest.object_id) == (5, "alice@example.org", "message.read", "4")
    assert newest.detail["query"] == "café \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER}"
    assert newest.client_address == "192.0.2.1"


def test_a_renamed_action_is_found_by_its_new_name(engine: Engine) -> None:
    with engine.begin() as connection:
        for action in ("search", "search.done", "searches", "export", "export.written", "export.requested", "export.removed"):
            audit.record(connection, WHO, action)

        def found(action: str) -> list[str]:
            return [entry.action for entry in reversed(audit.list_entries(connection, action=action))]

        assert found("search.done") == found("search") == ["search", "search.done"]
        assert found("export.requested") == ["export", "export.written", "export.requested"]
        assert found("export") == ["export", "export.written", "export.requested", "export.removed"]
        assert found("export.removed") == ["export.removed"]


def test_what_is_rolled_back_leaves_no_entry_and_no_gap(engine: Engine) -> None:
    write(engine, 1)
    with engine.connect() as connection:
        audit.record(connection, WHO, "message.read")
        connection.rollback()
    write(engine, 1)
    assert audit.verify(engine).entries == 2
    assert audit.verify(engine).broken == ()


def test_many_at_once_make_one_chain(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write(engine, 5), range(8)))
    done = audit.verify(engine)
    assert (done.entries, done.broken) == (40, ())


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_log SET actor = 'bob'", "DELETE FROM audit_log", "TRUNCATE audit_log", "UPDATE audit_log SET id = DEFAULT"],
)
def test_even_the_owner_of_the_table_is_refused(engine: Engine, statement: str) -> None:
    write(engine, 2)
    with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    assert audit.verify(engine).entries == 2


def test_an_entry_cannot_be_forged(engine: Engine) -> None:
    """Number, time and hashes are the database's, whatever is given."""
    write(engine, 1)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO audit_log (id, at, actor, action, previous_hash, hash) OVERRIDING SYSTEM VALUE"
                " VALUES (77, '1999-01-01', 'x', 'y', 'a', 'b')"
            )
        )
        newest = audit.list_entries(connection, limit=1)[0]
    assert newest.id == 2
    assert newest.at.year > 2000
    assert audit.verify(engine).broken == ()


def tamper(engine: Engine, statement: str) -> None:
    """As somebody would who owns the whole server."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit_log DISABLE TRIGGER ALL"))
        connection.execute(text(statement))
        connection.execute(text("ALTER TABLE audit_log ENABLE TRIGGER ALL"))


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE audit_log SET actor = 'bob' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET detail = '{}' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET at = at + interval '1 microsecond' WHERE id = 3", "entry 3 was changed"),
        ("DELETE FROM audit_log WHERE id = 3", "entry 3 is missing"),
        ("DELETE FROM audit_log WHERE id IN (2, 3)", "entries 2 to 3 are missing"),
        ("DELETE FROM audit_log WHERE id = 1", "entry 1 is missing"),
        ("UPDATE audit_log SET previous_hash = sha256('x') WHERE id = 3", "entry 3 does not follow its predecessor"),
    ],
)
def test_tampering_is_found(engine: Engine, statement: str, fault: str) -> None:
    write(engine)
    tamper(engine, statement)
    assert fault in audit.verify(engine).broken


def test_a_cut_end_is_found_by_a_head_that_was_kept(engine: Engine) -> None:
    write(engine)
    head = audit.verify(engine).head
    write(engine, 1)
    assert audit.verify(engine, head).broken == ()
    tamper(engine, "DELETE FROM audit_log WHERE id >= 5")
    assert audit.verify(engine).broken == ()
    assert "the log was truncated" in audit.verify(engine, head).broken[0]


def test_filters(engine: Engine) -> None:
    write(engine, 2)
    with engine.begin() as connection:
        audit.record(connection, LOCAL_OPERATOR, "user.added", "user", "u1")
        audit.record(connection, LOCAL_OPERATOR, "users", "user", "u1")

        def numbers(**filters: Any) -> list[int]:
            return [entry.id for entry in audit.list_entries(connection, **filters)]

        assert numbers() == [4, 3, 2, 1]
        assert numbers(actor="ALICE@example.org") == [2, 1]
        assert numbers(action="message") == [2, 1]
        assert numbers(action="user") == [3]
        assert numbers(object_id="u1", before=4) == [3]
        assert numbers(limit=1) == [4]
    assert [entry.id for entry in audit.export_entries(engine, actor="local-operator")] == [4, 3]


def test_the_role_that_the_program_works_as_cannot_touch_it(postgres: EmbeddedPostgres, empty_database_url: str) -> None:
    """In the embedded Postgres: the tables belong to another role, and ours may only read and append."""
    name = empty_database_url.rsplit("/", 1)[1].split("?")[0]
    owner, app_url = make_engine(empty_database_url, "test"), postgres.app_url(name)
    schema.migrate(owner, "archiver_app")
    app = make_engine(app_url, "test")
    write(app, 2)
    with psycopg.connect(app_url) as connection:
        assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)
        for statement in (
            "UPDATE audit_log SET actor = 'x'",
            "DELETE FROM audit_log",
            "TRUNCATE audit_log",
            "ALTER TABLE audit_log DISABLE TRIGGER ALL",
            "DROP TRIGGER audit_log_append_only ON audit_log",
            "CREATE OR REPLACE FUNCTION audit_log_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "DROP TABLE audit_log",
            "GRANT ALL ON audit_log TO archiver_app",
            "SET ROLE archiver",
            "SET session_replication_role = replica",
            "CREATE TEMPORARY TABLE audit_log (id bigint, hash bytea)",
            "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'",
            "CREATE TABLE audit_log_2 (id bigint)",
        ):
            try:
                connection.execute(statement)
                changed = connection.execute("SELECT has_table_privilege('audit_log', 'UPDATE, DELETE, TRUNCATE')").fetchone()
                assert changed == (False,), statement
                assert not statement.startswith("CREATE"), statement
            except psycopg.errors.InsufficientPrivilege:
                pass
            connection.rollback()
        connection.execute("UPDATE users SET name = 'x'")
        connection.execute("DELETE FROM sessions")
    assert audit.verify(app).entries == 2
    with app.begin() as connection:
        listed = [f"k{number}" for number in range(20_000)]
        assert ledger.differences(connection, uuid7(), "INBOX", listed, "#").gone == [], "long listings work without the right"
    audit.record_look(app, WHO, "message.read", "message")
    assert audit.verify(app).entries == 3
    app.dispose()
    owner.dispose()
    assert driver_url(app_url) != driver_url(empty_database_url)


def test_a_table_of_the_callers_own_is_not_taken_for_the_log(engine: Engine) -> None:
    """Even where temporary tables may be created: the one who records can't choose number and predecessor of an entry."""
    write(engine, 2)
    with engine.begin() as connection:
        connection.execute(text("CREATE TEMPORARY TABLE audit_log (id bigint, hash bytea) ON COMMIT DROP"))
        connection.execute(text("INSERT INTO audit_log VALUES (998, 'forged')"))
        connection.execute(text("INSERT INTO public.audit_log (actor, action) VALUES ('x', 'y')"))
    done = audit.verify(engine)
    assert (done.entries, done.broken) == (3, ())


def _answers(server: EmbeddedPostgres) -> bool:
    try:
        server.check()
    except NotReady:
        return False
    return True


def test_a_look_that_was_recorded_survives_the_death_of_the_database(tmp_path: Path) -> None:
    """It is on disk before anything is shown: what Postgres had in memory only is lost here."""
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    server = EmbeddedPostgres(folder)
    server.prepare()
    process = server.start()
    assert process.stdout is not None
    try:
        eventually(lambda: _answers(server), what="a server")
        engine = make_engine(server.url(), "test")
        schema.migrate(engine)
        for number in range(3):
            audit.record_look(engine, WHO, "message.read", "message", number)
        everything = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for act in (psutil.Process.suspend, psutil.Process.kill):  # first, so that none of them finishes anything
            for one in everything:
                with contextlib.suppress(psutil.NoSuchProcess):  # those that clean up come and go
                    act(one)
        process.wait(DEADLINE_SECONDS)
        engine.dispose()
    finally:
        process.kill()
        process.stdout.close()
    server.prepare()
    with server.running():
        engine = make_engine(server.url(), "test")
        assert audit.verify(engine).entries == 3
        engine.dispose()
