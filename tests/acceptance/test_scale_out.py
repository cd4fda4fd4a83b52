"""Two machines, which are two data folders, on one Postgres, Valkey, bucket and search server. One dies; nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from archiver.config import load_settings
from archiver.errors import ConfigError
from archiver.maintenance.checks.verify import verify
from archiver.secrets import credentials_keyring
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.store.open import open_archive
from archiver.store.sharing import check_packs_are_here
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.valkey import EmbeddedValkey
from tests.support.ports import free_port
from tests.support.search_at import SearchAt
from tests.support.waiting import eventually

KEY = "k1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
ACCESS, SECRET = "AKIAARCHIVE00002", "secretsecretsecret5678"
MAILBOXES, MESSAGES = 40, 25


@contextmanager
def bucket(folder: Path) -> Iterator[dict[str, str]]:
    port = free_port()
    (folder / "mail").mkdir(parents=True)
    command = [str(Path(sys.executable).parent / "rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    environment = {**os.environ, "RCLONE_CONFIG": str(folder / "rclone.conf")}
    process = subprocess.Popen(
        [*command, "--auth-key", f"{ACCESS},{SECRET}", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        eventually(lambda: _listens(port), what="the bucket")
        yield {
            "STORAGE_TYPE": "s3",
            "STORAGE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
            "STORAGE_S3_BUCKET": "mail",
            "STORAGE_S3_ACCESS_KEY_ID": ACCESS,
            "STORAGE_S3_SECRET_ACCESS_KEY": SECRET,
            "STORAGE_S3_FORCE_PATH_STYLE": "true",
        }
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


class Machine:
    """The workers of one data folder."""

    def __init__(self, folder: Path, shared: dict[str, str]) -> None:
        own = {"ARCHIVER_DATA": str(folder), "LOG_LEVEL": "warning", "SYNC_FREQUENCY": "1d", "SLICE_SECONDS": "1"}
        self.environment = {**os.environ, **shared, **own}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for queue in ("ingestion", "indexing"):
            self.workers[queue] = subprocess.Popen([sys.executable, "-m", "workers", queue], env=self.environment)

    def stop(self, number: signal.Signals) -> None:
        for worker in self.workers.values():
            worker.send_signal(number)
        for worker in self.workers.values():
            worker.wait()


@pytest.fixture
def shared(engine: Engine, database_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        folder = DataFolder(tmp_path / "servers")
        folder.prepare()
        valkey = EmbeddedValkey(folder)
        valkey.prepare()
        stack.enter_context(valkey.running())
        search = SearchAt(tmp_path / "search").start()
        stack.callback(search.kill)
        own = {"DATABASE_URL": database_url, "REDIS_URL": valkey.url(), "ENCRYPTION_KEY": KEY, "STORAGE_ENCRYPTION_KEY": KEY}
        yield {**own, **search.variables, **stack.enter_context(bucket(tmp_path / "bucket"))}


def _start_source(engine: Engine, settings: Any) -> Any:
    values = {"mailboxes": MAILBOXES, "messages_per_mailbox": MESSAGES, "folders": ["INBOX"], "batch_messages": 5}
    source = sources.add(engine, credentials_keyring(settings), QuietContext(), "fake", "company", values, {})
    with engine.begin() as connection:
        sources.sync_now(connection, source)
    return source


@pytest.mark.chaos
def test_one_of_two_machines_dies(engine: Engine, shared: dict[str, str], tmp_path: Path) -> None:
    settings = load_settings({**shared, "ARCHIVER_DATA": str(tmp_path / "reader")}, Path("none"))
    source = _start_source(engine, settings)
    one, two = Machine(tmp_path / "one", shared), Machine(tmp_path / "two", shared)
    one.start()
    two.start()
    try:
        eventually(lambda: _workers(engine) == 4, what="four workers")
        eventually(lambda: _count(engine, "SELECT count(*) FROM messages") > 100, what="some mail")
        one.stop(signal.SIGKILL)
        run = runs.wait_for_run(engine, source.id, None, 300, lambda _: None)
        assert (run.outcome, run.archived) == ("success", MAILBOXES * MESSAGES)
        waiting = "SELECT count(*) FROM messages WHERE indexed_version < index_version OR search_state IN ('pending', 'body')"
        eventually(lambda: _count(engine, waiting) == 0, what="the index")
    finally:
        one.stop(signal.SIGKILL)
        two.stop(signal.SIGTERM)
    assert _count(engine, "SELECT count(*) FROM dead_letters") == 0
    archive = open_archive(settings, engine)
    try:
        assert verify(engine, archive, full=True).problems == []
    finally:
        archive.close()
    assert not list((tmp_path / "one").rglob("*.pack")) + list((tmp_path / "two").rglob("*.pack")), "packs are in the bucket"


def _workers(engine: Engine) -> int:
    return _count(engine, "SELECT count(*) FROM worker_processes WHERE seen_at > now() - interval '1 minute'")


def _count(engine: Engine, statement: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(statement)).scalar_one())


def test_a_second_machine_with_local_packs_is_refused(engine: Engine, database_url: str, tmp_path: Path) -> None:
    def opened(name: str) -> None:
        variables = {"DATABASE_URL": database_url, "ARCHIVER_DATA": str(tmp_path / name), "STORAGE_ENCRYPTION_KEY": KEY}
        settings = load_settings({**variables, "ENCRYPTION_KEY": KEY}, Path("none"))
        archive = open_archive(settings, engine)
        try:
            check_packs_are_here(settings, engine, archive)

        finally:
            archive.close()

    opened("first")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO packs (id, name, state, size_bytes) VALUES (gen_random_uuid(), 'x', 'sealed', 9)"))
    with pytest.raises(ConfigError, match=r"none of them is in .*second/packs.*STORAGE_TYPE=s3"):
        opened("second")
    worker = subprocess.run(
        [sys.executable, "-m", "workers", "ingestion"],
        env={
            **os.environ,
            "DATABASE_URL": database_url,
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "ARCHIVER_DATA": str(tmp_path / "third"),
            "STORAGE_ENCRYPTION_KEY": KEY,
            "ENCRYPTION_KEY": KEY,
        },
        capture_output=True,
        text=True,
    )
    assert worker.returncode != 0
    assert "packs in a local folder can't be shared" in worker.stderr
