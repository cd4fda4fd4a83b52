"""Exports: within a quota, never onto a full disk, and gone after their time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.access.principal import Principal
from archiver.config import Settings, load_settings
from archiver.exports import service as exports
from archiver.exports.selection import PackageOptions, Selection
from archiver.store.capacity import NoRoom
from tests.integration.sync.import_world import ImportWorld
from tests.support.export_runs import export_file, run_exports


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
        made = exports.request(connection, given, who, Selection(everything=True), PackageOptions(kind))
    run_exports(given, world.engine, world.work.ingest.archive)
    return str(world.one("SELECT state || coalesce(': ' || error, '') FROM exports WHERE id = :i", i=made))


@pytest.mark.parametrize("kind", ["eml", "mbox"])
def test_exports_have_a_quota_and_expire(world: ImportWorld, who: Principal, kind: str) -> None:
    size = world.one("SELECT sum(size_bytes) FROM messages")
    small, folder = settings(world, EXPORT_MAX_BYTES=str(size + 10)), world.settings.archiver_data / "exports"
    assert request(world, who, small, kind) == "done"
    there = sorted(folder.iterdir())
    assert request(world, who, small, kind).startswith("failed: freeze: your exports would exceed EXPORT_MAX_BYTES")
    assert sorted(folder.iterdir()) == there, "nothing of it is left"
    world.act("UPDATE exports SET bytes = bytes + 10 WHERE state = 'done'")
    with pytest.raises(exports.TooManyExports, match="remove some"):
        request(world, who, small, kind)
    world.act("UPDATE exports SET expires_at = now() - interval '1 second'")
    exports.tidy(world.engine, small)
    assert list(folder.iterdir()) == [], "they expire"
    assert request(world, who, small, kind) == "done"
    world.act("DELETE FROM users")
    exports.tidy(world.engine, small)
    assert list(folder.iterdir()) == [], "and go with their owner"


def test_an_export_stops_before_the_disk_is_full(world: ImportWorld, who: Principal) -> None:
    full = settings(world, DISK_MIN_FREE_BYTES="900T")
    with world.engine.begin() as connection:
        with pytest.raises(NoRoom):
            exports.request(connection, full, who, Selection(everything=True))
        exports.request(connection, world.settings, who, Selection(everything=True))
    run_exports(full, world.engine, world.work.ingest.archive)
    said = world.one("SELECT error FROM exports")
    assert said == "freeze: the disk is nearly full, so nothing more is written: free some space"
    assert not list((full.archiver_data / "exports").glob("*"))


def test_the_command_guards_the_disk_of_the_archive_and_no_other(world: ImportWorld) -> None:
    full, archive = settings(world, DISK_MIN_FREE_BYTES="900T"), world.work.ingest.archive
    here, elsewhere = world.place / "all.zip", Path("/dev/shm") / f"{world.admin.user_id}.zip"
    with pytest.raises(AssertionError, match="the disk is nearly full"):
        export_file(world.engine, archive, here, "zip", settings=full)
    assert not here.exists()
    assert [path.name for path in here.parent.iterdir() if "all.zip" in path.name] == []
    if elsewhere.parent.stat().st_dev == here.parent.stat().st_dev:
        pytest.skip("there is no other disk here")
    try:
        assert export_file(world.engine, archive, elsewhere, "zip", settings=full).messages == 3
    finally:
        elsewhere.unlink(missing_ok=True)
