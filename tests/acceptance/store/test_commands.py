"""The commands that care for the archive, as a person types them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from archiver.db.engine import make_engine
from archiver.db.tables import message_uuid
from archiver.supervisor.postgres import EmbeddedPostgres
from connectors.base import Batch, RawMessage
from tests.conftest import _create_database
from tests.integration.store.conftest import World, set_up
from tests.support.store_world import mail
from tests.support.waiting import DEADLINE_SECONDS

KEY = "test:" + base64.b64encode(b"k" * 32).decode()


class Commands:
    """`archiver …` on a data folder, with servers of our own."""

    def __init__(self, data: Path, url: str) -> None:
        self.environment = {
            **os.environ,
            "ARCHIVER_DATA": str(data),
            "DATABASE_URL": url,
            "REDIS_URL": "redis://127.0.0.1:1",
            "MEILI_HOST": "http://127.0.0.1:1",
            "MEILI_MASTER_KEY": "unused",
            "STORAGE_ENCRYPTION_KEY": KEY,
            "ENCRYPTION_KEY": KEY,
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(Path(sys.executable).parent / "archiver"), *arguments]
        return subprocess.run(command, env={**self.environment, **environment}, capture_output=True, timeout=DEADLINE_SECONDS)

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == code, done.stderr.decode()
        return json.loads(done.stdout)


@pytest.fixture
def data(engine: Engine, tmp_path: Path) -> Path:
    set_up(engine)
    world = World(engine, tmp_path / "data" / "packs")
    messages = tuple(
        RawMessage(f"k{number}", mail(number, attachment=b"%PDF" * 9000 if number % 5 == 0 else None)) for number in range(30)
    )
    world.open().store_batch(world.origin(), Batch(messages))
    world.archive.close()
    return tmp_path / "data"


def test_the_life_of_an_archive(data: Path, database_url: str, postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    archiver = Commands(data, database_url)
    message_id = str(message_uuid(hashlib.sha256(mail(5, attachment=b"%PDF" * 9000)).digest()))

    shown = archiver.run("show", message_id, "--raw")
    assert shown.stdout == mail(5, attachment=b"%PDF" * 9000)
    assert archiver.json("show", message_id)["subject"] == "Invoice number 5"

    report = archiver.json("verify", "--full")
    assert (report["healthy"], report["messages"], report["problems"]) == (True, 30, [])

    assert archiver.json("export", "--mailbox", "ALICE@example.org", "-o", str(tmp_path / "out.zip"))["messages"] == 30
    with zipfile.ZipFile(tmp_path / "out.zip") as exported:
        assert len(exported.namelist()) == 30 + 3  # manifest, signature, key

    assert archiver.json("backup", str(tmp_path / "backup"))["packs"] == 1
    assert archiver.json("delete", message_id, "--reason", "asked for", "--yes")["messages"] == 1
    assert archiver.run("show", message_id, "--raw").returncode == 2
    assert archiver.json("compact")["packs_before"] == 0  # it was written to a moment ago
    assert archiver.json("keys", "list")["active"] == "test"
    assert archiver.run("keys", "rotate").returncode == 2  # the key comes from the environment

    wrong = archiver.run("verify", STORAGE_ENCRYPTION_KEY="test:" + base64.b64encode(b"x" * 32).decode())
    assert wrong.returncode == 1
    assert b"the configured key of this id is another one" in wrong.stderr
    assert b"Traceback" not in wrong.stderr

    (pack,) = (data / "packs").glob("*.pack")
    whole = pack.read_bytes()
    pack.write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    damaged = archiver.json("verify", code=1)
    assert not damaged["healthy"]
    assert damaged["problems"][0]["pack"] == pack.name
    pack.write_bytes(whole)

    name = f"rebuilt_{os.getpid()}"
    _create_database(postgres, name, "template")
    rebuilt = Commands(data, postgres.url(name)).json("rebuild")
    assert (rebuilt["messages"], rebuilt["deleted_copies"], rebuilt["damage"]) == (29, 1, [])

    for mode, extra in (("restored", ()), ("remade", ("--rebuild",))):
        _create_database(postgres, f"{mode}_{os.getpid()}", "template")
        elsewhere = Commands(tmp_path / mode, postgres.url(f"{mode}_{os.getpid()}"))
        assert elsewhere.json("restore", str(tmp_path / "backup"), *extra)["packs"] == 1
        assert elsewhere.json("verify", "--full")["messages"] == 30
        engine = make_engine(postgres.url(f"{mode}_{os.getpid()}"), "test")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM message_copies").scalar_one() == 30
        engine.dispose()


def test_wrong_usage_is_told_in_one_line(data: Path, database_url: str, tmp_path: Path) -> None:
    archiver = Commands(data, database_url)
    for arguments, reason in (
        (("export", "-o", str(tmp_path / "x.zip")), b"name what to export"),
        (("export", "--all", "-o", str(tmp_path / "x.zip"), "--format", "pst"), b"expected one of zip, mbox, maildir"),
        (("delete", "--reason", "x"), b"name what to delete"),
        (("delete", "--mailbox", "nobody@x", "--reason", "x", "--yes"), b"there is no mailbox nobody@x"),
        (("restore", str(tmp_path)), b"has no completed backup"),
        (("rebuild",), b"rebuild needs an empty database"),
    ):
        done = archiver.run(*arguments)
        assert done.returncode == 2, arguments
        assert reason in done.stderr
        assert b"Traceback" not in done.stderr
