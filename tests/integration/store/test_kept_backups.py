"""Several backups in one place: older ones are kept, all are read back, and mail that arrives meanwhile is in the next."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from archiver.config import Settings
from archiver.errors import ArchiverError, UsageError
from archiver.maintenance.backups.archive_figures import archive_figures
from archiver.maintenance.backups.backup import BackupRunning, backup
from archiver.maintenance.backups.manifest import MANIFEST, kept_backups
from archiver.maintenance.backups.restore import adopt_newer, restore_packs
from archiver.maintenance.backups.target import FolderTarget, open_target
from archiver.maintenance.checks import outcomes
from archiver.retention.delete import delete_message
from archiver.sync.ingest.store_batch import Ingest
from connectors.base import Batch
from tests.integration.store.conftest import World
from tests.integration.store.filled import fill, id_of, messages_of
from tests.integration.store.test_backup import (
    after_the_dump,
    back_up,
    bring_back,
    bring_back_from,
    compact_all,
    opened,
    url_of,
)


def test_an_older_backup_can_be_restored_until_enough_newer_ones_exist(
    world: World, new_world: Callable[..., World], tmp_path: Path
) -> None:
    world.limit_bytes = 40_000
    fill(world)
    target, before = tmp_path / "backup", world.content()
    first = back_up(world, target, keep=2)
    delete_message(world.engine, world.archive, id_of(20), "asked for")
    compact_all(world)  # replaces every pack of the first backup
    second = back_up(world, target, keep=2)
    assert (first.backups, second.backups, second.kept) == (1, 2, 0)
    assert [one.name for one in kept_backups(FolderTarget(target))] == [second.name, first.name]
    older = bring_back_from(opened(target, first.name), new_world(empty=True))
    assert older.content() == before
    newest = bring_back(target, new_world(empty=True))
    assert newest.content() == world.content() != before
    assert {path.name for path in newest.folder.glob("*.pack")} == {
        row.name for row in world.rows("SELECT name FROM packs WHERE state <> 'retired'")
    }, "packs of older backups only are not restored with a newer one"
    third = back_up(world, target, keep=2)
    assert [one.name for one in kept_backups(FolderTarget(target))] == [third.name, second.name]
    assert {path.name for path in target.glob("*.dump")} == {f"database-{one.name}.dump" for one in (second, third)}
    with pytest.raises(UsageError, match=f"no backup {first.name!r}"):
        opened(target, first.name)
    live = {row.name for row in world.rows("SELECT name FROM packs WHERE state <> 'retired'")}
    assert {path.name for path in (target / "packs").iterdir()} == live


def test_what_is_written_is_read_back(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(world)
    target = tmp_path / "backup"
    back_up(world, target)
    manifest = (target / MANIFEST).read_bytes()

    def read_other(path: Path) -> Iterator[bytes]:
        content = path.read_bytes()
        yield content[:-1] + b"?" if path.name.endswith(".new") else content

    with monkeypatch.context() as patched:
        patched.setattr(FolderTarget, "_read", staticmethod(read_other))
        with pytest.raises(ArchiverError, match=r"database-\S+ was read back with other content"):
            back_up(world, target)
    assert (target / MANIFEST).read_bytes() == manifest
    assert not list(target.rglob(".*"))
    with world.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.BACKUP)
    assert outcome is not None
    assert outcome.has_failed


def test_a_changed_pack_in_the_backup_is_named(world: World, new_world: Callable[..., World], tmp_path: Path) -> None:
    world.limit_bytes = 40_000
    fill(world)
    back_up(world, tmp_path / "backup")
    path = sorted((tmp_path / "backup" / "packs").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    empty = new_world(empty=True)
    empty.open()
    assert restore_packs(opened(tmp_path / "backup"), empty.archive).damage == [
        f"{path.name} in the backup is not what was backed up: its checksum is wrong"
    ]


def test_a_backup_of_another_archive_and_the_archive_itself_are_no_places(
    world: World, new_world: Callable[..., World], tmp_path: Path
) -> None:
    fill(world)
    back_up(world, tmp_path / "backup")
    other = new_world()
    other.open().store_batch(other.origin(), Batch(messages_of(1)))
    with other.engine.begin() as connection:
        connection.execute(text("UPDATE archive_state SET archive_id = gen_random_uuid()"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "backup").rglob("*")}
    with pytest.raises(UsageError, match="a backup of another archive"):
        back_up(other, tmp_path / "backup")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "backup").rglob("*")} == before
    settings = Settings(archiver_data=tmp_path / "data")
    for place in (tmp_path / "data", tmp_path / "data" / "packs", tmp_path / "x" / ".." / "data"):
        with pytest.raises(UsageError, match="the archive itself"):
            open_target(settings, str(place))


def test_two_backups_at_once(world: World, tmp_path: Path) -> None:
    fill(world)

    def another(done: int, total: int) -> None:
        with pytest.raises(BackupRunning, match="another backup"):
            back_up(world, tmp_path / "other")

    backup(world.engine, world.archive, url_of(world), FolderTarget(tmp_path / "backup"), another)
    assert not (tmp_path / "other").exists()
    with world.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.BACKUP)
    assert outcome is not None
    assert not outcome.has_failed, "a refused one is no failure of the running one"


def test_mail_that_arrives_during_a_backup_is_in_the_next(
    world: World, new_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world)
    expected = world.content()

    def arrive() -> None:
        Ingest(world.engine, world.archive).store_batch(world.origin(), Batch(messages_of(*range(300, 310))))

    with after_the_dump(monkeypatch, arrive):
        done = back_up(world, tmp_path / "backup")
    assert done.messages == len(expected["messages"])
    restored = bring_back(tmp_path / "backup", new_world(empty=True))
    assert restored.content() == expected
    with restored.engine.connect() as connection:
        assert archive_figures(connection) == opened(tmp_path / "backup").manifest.figures
    adopt_newer(restored.engine, restored.archive)
    with restored.engine.connect() as one, world.engine.connect() as other:
        assert archive_figures(one) == archive_figures(other)
    assert back_up(world, tmp_path / "backup").messages == done.messages + 10
