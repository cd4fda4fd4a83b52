"""Exports written by a real worker, beside a sync, while Valkey loses everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.exports.verifying import verify_export
from archiver.supervisor.valkey import EmbeddedValkey
from tests.integration.exports.conftest import ExportWorld, manifest_of
from tests.support import mailfiles
from tests.support.waiting import eventually


@contextmanager
def worker(world: ExportWorld, valkey: EmbeddedValkey, log: Path) -> Iterator[None]:
    own = {"DATABASE_URL": world.database_url, "REDIS_URL": valkey.url(), "ARCHIVER_DATA": str(world.settings.archiver_data)}
    environment = {**os.environ, **own, "DISK_MIN_FREE_BYTES": "0"}
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-m", "workers", "ingestion"], env=environment, stderr=said, stdout=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def write_beside_a_sync(world: ExportWorld, valkey: EmbeddedValkey, tmp_path: Path, messages: int) -> None:
    before = len(world.hashes())
    path = mailfiles.put(
        tmp_path / "many.mbox", mailfiles.mbox([mailfiles.message(1000 + number) for number in range(messages)])
    )
    item = world.begin(path, mailbox="bob@example.org")
    first = world.export()
    with worker(world, valkey, tmp_path / "worker.log"):
        eventually(lambda: world.one("SELECT count(*) FROM messages") > before, what="the sync is running")
        second = world.export()
        valkey._client().flushall()
        eventually(lambda: world.state(second) != "queued", what="the second export has begun")
        valkey._client().flushall()
        for export_id in (first, second):
            eventually(lambda export_id=export_id: world.state(export_id) not in ("queued", "running"), what="an export")
        eventually(lambda: world.load(item).outcome is not None, what="the end of the sync")
    for export_id in (first, second):
        assert world.state(export_id) == "done"
        check = verify_export(world.volumes(export_id), world.key())
        lines = manifest_of(world.volumes(export_id))
        assert (check.problems, check.missing, check.messages) == ([], 0, lines[0]["messages"])
        assert check.messages >= before
    assert len(world.hashes()) == before + messages
    said = (tmp_path / "worker.log").read_text()
    assert "Traceback" not in said
    assert f'"correlation_id": "{first}"' in said or f"correlation_id={first}" in said


def test_an_export_beside_a_sync_while_valkey_is_flushed(world: ExportWorld, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    write_beside_a_sync(world, valkey, tmp_path, 1_500)


@pytest.mark.chaos
def test_an_export_of_50_000_messages_beside_a_sync(
    world: ExportWorld, valkey: EmbeddedValkey, tmp_path: Path, engine: Engine
) -> None:
    path = mailfiles.put(tmp_path / "held.mbox", mailfiles.mbox([mailfiles.message(100_000 + n) for n in range(50_000)]))
    world.begin(path)
    world.drain()
    write_beside_a_sync(world, valkey, tmp_path, 20_000)
