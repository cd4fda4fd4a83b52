"""PostgreSQL of another major version in containers: the commands of docs/upgrading.md, with the servers from the wheels."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import psycopg
import pytest

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import load_settings
from archiver.db import schema
from archiver.db.engine import make_engine
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres, installed_versions

_DOCS = Path(__file__).parents[2] / "docs" / "upgrading.md"
_COMMAND = re.compile(r"^docker compose exec -T postgres (pg_\w+ .+) ([<>]) (\S+)$", re.MULTILINE)


def _server(folder: Path, major: int) -> EmbeddedPostgres:
    data = DataFolder(folder)
    data.prepare()
    server = EmbeddedPostgres(data)
    server.programs, server.major = installed_versions()[major], major
    server.prepare()
    return server


def _run_as_documented(line: tuple[str, str, str], server: EmbeddedPostgres, folder: Path) -> None:
    """In the container of the server, on its socket; the file is outside."""
    (program, *options), direction, name = shlex.split(line[0]), line[1], line[2]
    with psycopg.connect(server.url()) as connection:
        variables = {
            "PGHOST": str(server.socket_folder),
            "PGPORT": str(connection.info.port),
            "PGPASSWORD": connection.info.password,
        }
    command = [str(server.programs / program), *options]
    with (folder / name).open("wb" if direction == ">" else "rb") as file:
        taken, given = (None, file) if direction == ">" else (file, None)
        done = subprocess.run(
            command, stdin=taken, stdout=given, stderr=subprocess.PIPE, env=os.environ | variables, check=False
        )
    assert done.returncode == 0, done.stderr.decode()


def _migrate(server: EmbeddedPostgres) -> None:
    variables = {"DATABASE_URL": server.app_url(), "DATABASE_OWNER_URL": server.url(), "ARCHIVER_DATA": str(server.folder.path)}
    schema.migrate_database(load_settings(variables, Path("none")))


def _record(server: EmbeddedPostgres, count: int) -> None:
    engine = make_engine(server.app_url(), "test")
    with engine.begin() as connection:
        for number in range(count):
            audit.record(connection, LOCAL_OPERATOR, "message.read", "message", number)
    assert not audit.verify(engine).broken
    engine.dispose()


def test_the_documented_commands_move_a_database_to_another_major_version(tmp_path: Path) -> None:
    commands = _COMMAND.findall(_DOCS.read_text())
    assert [shlex.split(command)[0] for command, _, _ in commands] == ["pg_dump", "pg_restore"]
    old = _server(tmp_path / "old", min(installed_versions()))
    with old.running():
        _migrate(old)
        _record(old, 3)
        _run_as_documented(commands[0], old, tmp_path)

    new = _server(tmp_path / "new", max(installed_versions()))
    assert new.major > old.major
    with new.running():
        with psycopg.connect(new.url("postgres"), autocommit=True) as connection:
            connection.execute("DROP ROLE archiver_app")  # a new server in a container has the owner only
        _run_as_documented(commands[1], new, tmp_path)
        _migrate(new)
        _record(new, 2)
        with psycopg.connect(new.app_url()) as connection:
            assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (5,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("DELETE FROM audit_log")
