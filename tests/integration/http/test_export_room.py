"""Exports: within a quota, never onto a full disk, and gone after their time. (No web process runs here: it would run them.)"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.access.principal import Principal
from archiver.config import Settings, load_settings
from archiver.reading import export_jobs
from archiver.reading.export import export
from archiver.store.capacity import NoRoom, disk_check
from tests.integration.sync.import_world import ImportWorld


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ImportWorld:
    made = ImportWorld(tmp_path, engine, database_url)
    made.begin(made.file("a.mbox", 1, 2, 3))
    made.drain()
    made.act("UPDATE users SET may_read_all = true")
    return made


@pytest.fixture
def who(world: ImportWorld) -> Principal:
    return replace(world.admin, may_read_all=True)


def settings(world: ImportWorld, **more: str) -> Settings:
    given = {"ARCHIVER_DATA": str(world.settings.archiver_data), "DATABASE_URL": world.database_url, "DISK_MIN_FREE_BYTES": "0"}
    return load_settings({**given, **more}, Path("none"))


def request(world: ImportWorld, who: Principal, given: Settings, kind: str) -> str:
    with world.engine.begin() as connection:
        made = export_jobs.request(connection, given, who, {"everything": True}, kind)
    export_jobs.run_open(world.engine, world.work.ingest.archive, given)
    return str(world.one("SELECT state || coalesce(': ' || error, '') FROM exports WHERE id = :i", i=made.id))


@pytest.mark.parametrize("kind", ["zip", "mbox"])
def test_exports_have_a_quota_and_expire(world: ImportWorld, who: Principal, kind: str) -> None:
    size = world.one("SELECT sum(size_bytes) FROM messages")
    small, folder = settings(world, EXPORT_MAX_BYTES=str(size + 10)), world.settings.archiver_data / "exports"
    assert request(world, who, small, kind) == "done"
    there = sorted(folder.iterdir())
    assert request(world, who, small, kind).startswith("failed: your exports would exceed EXPORT_MAX_BYTES")
    assert sorted(folder.iterdir()) == there, "nothing of it is left"
    world.act("UPDATE exports SET bytes = bytes + 10 WHERE state = 'done'")
    with pytest.raises(export_jobs.TooManyExports, match="remove some"):
        request(world, who, small, kind)
    world.act("UPDATE exports SET expires_at = now() - interval '1 second'")
    export_jobs.run_open(world.engine, world.work.ingest.archive, small)
    assert list(folder.iterdir()) == [], "they expire"
    assert request(world, who, small, kind) == "done"
    world.act("DELETE FROM users")
    export_jobs.run_open(world.engine, world.work.ingest.archive, small)
    assert list(folder.iterdir()) == [], "and go with their owner"


def test_an_export_stops_before_the_disk_is_full(world: ImportWorld, who: Principal) -> None:
    full = settings(world, DISK_MIN_FREE_BYTES="900T")
    with world.engine.begin() as connection:
        with pytest.raises(NoRoom):
            export_jobs.request(connection, full, who, {"everything": True}, "zip")
        made = export_jobs.request(connection, world.settings, who, {"everything": True}, "zip")
    left = export_jobs.path_of(full, made).with_name(f".{made.id}.zip.12345")
    left.parent.mkdir()
    left.write_bytes(b"of a process that died")
    export_jobs.run_open(world.engine, world.work.ingest.archive, full)
    assert world.one("SELECT error FROM exports") == "the disk is nearly full, so nothing more is written: free some space"
    assert list(left.parent.iterdir()) == []


def test_the_command_guards_the_disk_of_the_archive_and_no_other(world: ImportWorld) -> None:
    full, archive = settings(world, DISK_MIN_FREE_BYTES="900T"), world.work.ingest.archive
    here, elsewhere = world.place / "all.zip", Path("/dev/shm") / f"{world.admin.user_id}.zip"
    with pytest.raises(NoRoom):
        export(world.engine, archive, here, "zip", spend=disk_check(full, here))
    assert not here.exists()
    if elsewhere.parent.stat().st_dev == here.parent.stat().st_dev:
        pytest.skip("there is no other disk here")
    try:
        assert export(world.engine, archive, elsewhere, "zip", spend=disk_check(full, elsewhere)).messages == 3
    finally:
        elsewhere.unlink(missing_ok=True)
