"""What the database does not know is not dead: after an older dump, a killed compaction, a batch that was rolled back."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from archiver.db.tables import message_uuid
from archiver.errors import ArchiverError
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.dump import load_dump
from archiver.maintenance.backups.restore import Backup, adopt_newer, restore_packs
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.catch_up import catch_up
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.retention.delete import delete_message
from archiver.store.archive import Archive
from archiver.store.files import OsFiles
from archiver.store.frames import FrameKind
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.integration.store.filled import NOW, fill, id_of, messages_of, read_all
from tests.integration.store.test_backup import compact_all, url_of
from tests.support.failing_commit import failing_commit


class Killed(BaseException):
    """As SIGKILL: nothing is tidied up in the database; what is open in this process stays open."""


def back_up(world: World, target: Path) -> None:
    backup(world.engine, world.archive, url_of(world), FolderTarget(target), keep=1)


def opened(target: Path) -> Backup:
    return Backup.open(FolderTarget(target), target.parent / "scratch")


def roll_back(world: World, target: Path, new_world: Callable[..., World]) -> World:
    """The packs as they are, and the database of an older backup."""
    world.archive.close()
    older = new_world(empty=True, folder=world.folder)
    older.open()
    load_dump(target / opened(target).manifest.dump, url_of(older), older.archive.keys)
    older.engine.dispose()
    older.archive.close()
    older.limit_bytes = world.limit_bytes
    older.open()
    return older


def mail_of(world: World) -> dict[str, object]:
    """What must not be lost: messages and their copies."""
    content = world.content()
    return {"messages": {row.id for row in content["messages"]}, "copies": [tuple(row) for row in content["copies"]]}


def go_on(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(*range(100, 130))))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(100, 105, 131)))
    delete_message(world.engine, world.archive, id_of(20), "asked for")


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("limit", [40_000, 256 << 20])
def test_an_older_dump_then_compaction_and_backup_lose_nothing(
    world: World, new_world: Callable[..., World], tmp_path: Path, limit: int, compacted: bool
) -> None:
    """Also if compaction replaced the packs of the dump, and their files are gone."""
    world.limit_bytes = limit
    fill(world)
    back_up(world, tmp_path / "early")
    go_on(world)
    if compacted:
        compact_all(world)
    back_up(world, tmp_path / "backup")
    expected, files = mail_of(world), {path.name for path in (tmp_path / "backup" / "packs").iterdir()}
    older = roll_back(world, tmp_path / "early", new_world)
    report = verify(older.engine, older.archive, full=True)
    assert any("does not know" in problem.what for problem in report.problems)
    back_up_anyway(older, tmp_path / "backup")
    assert files <= {path.name for path in (tmp_path / "backup" / "packs").iterdir()}
    done = compact(older.engine, older.archive, older.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    assert done.adopted > 0
    assert mail_of(older) == expected
    compact_all(older)
    assert mail_of(older) == expected
    assert read_all(older) == len(expected["messages"])  # type: ignore[arg-type]
    assert verify(older.engine, older.archive, full=True).problems == []
    back_up(older, tmp_path / "backup")
    restored = new_world(empty=True)
    restored.open()
    restore_packs(opened(tmp_path / "backup"), restored.archive)
    load_dump(tmp_path / "backup" / opened(tmp_path / "backup").manifest.dump, url_of(restored), restored.archive.keys)
    restored.engine.dispose()
    adopt_newer(restored.engine, restored.archive)
    assert mail_of(restored) == expected
    assert read_all(restored) == len(expected["messages"])  # type: ignore[arg-type]


def back_up_anyway(world: World, target: Path) -> None:
    """It refuses where packs that the database names are missing; it removes nothing then."""
    with suppress(ArchiverError):
        back_up(world, target)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_database_that_was_rolled_back_is_noticed_at_the_start(
    world: World, new_world: Callable[..., World], tmp_path: Path, compacted: bool
) -> None:
    world.limit_bytes = 40_000
    fill(world)
    back_up(world, tmp_path / "early")
    go_on(world)
    if compacted:
        compact_all(world)
    expected = mail_of(world)
    said: list[str] = []
    older = roll_back(world, tmp_path / "early", new_world)
    generation = older.value("SELECT generation FROM archive_state")
    catch_up(older.engine, older.archive, said.append)
    assert "older than the packs" in said[0]
    assert older.value("SELECT generation FROM archive_state") > generation
    assert mail_of(older) == expected
    assert read_all(older) == len(expected["messages"])  # type: ignore[arg-type]
    assert verify(older.engine, older.archive, full=True).problems == []
    said.clear()
    catch_up(older.engine, older.archive, said.append)
    assert said == []
    ingest = older.open()
    assert ingest.store_batch(older.origin(), Batch(messages_of(20))).archived == 0  # deleted after the dump
    assert ingest.store_batch(older.origin(), Batch(messages_of(140))).archived == 1


def test_a_healthy_archive_starts_without_a_word(world: World) -> None:
    said: list[str] = []
    catch_up(world.engine, open_archive(world), said.append)
    fill(world)
    world.archive.close()
    catch_up(world.engine, open_archive(world), said.append)
    assert said == []


def open_archive(world: World) -> Archive:
    world.open()
    return world.archive


def test_a_batch_that_was_rolled_back_is_taken_in_at_the_start(world: World) -> None:
    """Its bytes were on disk. That is no rollback of the database."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1)))
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), Batch(messages_of(2)))
    world.archive.close()
    world.open()
    assert not verify(world.engine, world.archive).is_healthy
    said: list[str] = []
    catch_up(world.engine, world.archive, said.append)
    assert not any("older than the packs" in sentence for sentence in said)
    assert said[-1] == "added 1 message, 1 copy and 0 deletions from the packs"
    assert read_all(world) == 2
    assert verify(world.engine, world.archive, full=True).problems == []


def test_frames_that_the_database_does_not_know_are_not_passed_over_by_a_new_writer(world: World) -> None:
    """They would be inside what the database takes for known."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1)))
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), Batch(messages_of(2)))
    world.archive.close()
    (path,) = world.folder.iterdir()
    size = path.stat().st_size
    world.open().store_batch(world.origin(), Batch(messages_of(3)))
    assert path.stat().st_size == size
    world.archive.close()
    world.open()
    catch_up(world.engine, world.archive, lambda _: None)
    assert read_all(world) == 3


def passed_over(world: World) -> None:
    """A batch that was rolled back, and another one behind it in the same pack."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1)))
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), Batch(messages_of(2)))
    ingest.store_batch(world.origin(), Batch(messages_of(3)))
    assert len(list(world.folder.iterdir())) == 1


@pytest.mark.parametrize("full", [False, True])
def test_a_message_that_later_batches_have_passed_is_a_problem_and_compaction_takes_it_in(world: World, full: bool) -> None:
    passed_over(world)
    report = verify(world.engine, world.archive, full=full)
    assert ["does not know this message" in problem.what for problem in report.problems] == [True]
    done = compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    assert done.adopted == 1
    assert read_all(world) == 3
    assert verify(world.engine, world.archive, full=full).problems == []


@pytest.mark.parametrize("full", [False, True])
def test_a_repeat_of_a_message_is_no_problem(world: World, full: bool) -> None:
    passed_over(world)
    world.open().store_batch(world.origin(), Batch(messages_of(2)))
    assert verify(world.engine, world.archive, full=full).problems == []
    delete_message(world.engine, world.archive, id_of(2), "asked for")
    assert verify(world.engine, world.archive, full=full).problems == []


def test_an_unknown_pack_is_a_problem(world: World) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    shutil.copy(path, path.with_name("01900000-0000-7000-8000-0000000000aa.pack"))
    world.open()
    report = verify(world.engine, world.archive)
    assert ["does not know this pack" in problem.what for problem in report.problems] == [True]


@pytest.mark.parametrize("full", [False, True])
def test_a_deletion_that_the_database_does_not_know_is_a_problem(
    world: World, new_world: Callable[..., World], tmp_path: Path, full: bool
) -> None:
    fill(world)
    back_up(world, tmp_path / "early")
    delete_message(world.engine, world.archive, id_of(20), "asked for")
    older = roll_back(world, tmp_path / "early", new_world)
    report = verify(older.engine, older.archive, full=full)
    assert ["does not know the frames from here on" in problem.what for problem in report.problems] == [True]
    catch_up(older.engine, older.archive, lambda _: None)
    assert verify(older.engine, older.archive, full=full).problems == []
    assert older.rows("SELECT 1 FROM messages WHERE id = :id", id=id_of(20)) == []


# erased mail


def traces(world: World, number: int) -> list[str]:
    """The packs and leftovers in which a message still is."""
    sha256 = hashlib.sha256(messages_of(number)[0].data or b"").digest()
    tag = world.archive.keys.active.content_tag(sha256)
    return [path.name for path in world.folder.rglob("*") if path.is_file() and tag in path.read_bytes()]


def test_erased_mail_does_not_survive_in_a_batch_that_was_rolled_back(world: World, new_world: Callable[..., World]) -> None:
    passed_over(world)
    world.open().store_batch(world.origin(), Batch(messages_of(2)))
    delete_message(world.engine, world.archive, id_of(2), "asked for")
    assert traces(world, 2)
    world.close()  # nobody writes any more
    world.open()
    compact_all(world)
    assert traces(world, 2) == []
    assert read_all(world) == 2
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert {row.id for row in rebuilt.rows("SELECT id FROM messages")} == {id_of(1), id_of(3)}


class DiesAfterRename(OsFiles):
    def rename(self, path: Path, target: Path) -> None:
        super().rename(path, target)
        raise Killed


@pytest.mark.parametrize("deleted_before", [False, True])
def test_erased_mail_does_not_survive_in_a_pack_of_a_killed_compaction(
    world: World, new_world: Callable[..., World], deleted_before: bool
) -> None:
    world.limit_bytes = 40_000
    fill(world)
    world.archive.close()
    before = {path.name for path in world.folder.glob("*.pack")}
    world.open(DiesAfterRename())
    with pytest.raises(Killed):
        compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    world.archive.close()
    unknown = {path.name for path in world.folder.glob("*.pack")} - before
    assert len(unknown) == 1
    world.open()
    if deleted_before:
        delete_message(world.engine, world.archive, id_of(21), "asked for")
    compact_all(world)
    if not deleted_before:
        delete_message(world.engine, world.archive, id_of(21), "asked for")
        compact_all(world)
    assert traces(world, 21) == []
    assert id_of(21) not in {row.id for row in world.rows("SELECT id FROM messages")}
    assert read_all(world) == world.value("SELECT count(*) FROM messages")
    assert verify(world.engine, world.archive, full=True).problems == []
    expected = mail_of(world)
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert mail_of(rebuilt) == expected


def test_a_deletion_that_was_never_confirmed_is_confirmed_by_a_backup(world: World, tmp_path: Path) -> None:
    fill(world)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE tombstones SET confirmed_at = NULL")
    back_up(world, tmp_path / "backup")
    assert world.value("SELECT count(*) FROM tombstones WHERE confirmed_at IS NULL") == 0


def test_the_bytes_under_one_key_are_those_of_the_batch_that_counted(world: World) -> None:
    """A rolled back batch is taken in as another version; what was committed is not displaced."""
    ingest = world.open()
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), Batch((RawMessage("key", b"Subject: rolled back\r\n\r\nx"),)))
    ingest.store_batch(world.origin(), Batch((RawMessage("key", b"Subject: committed\r\n\r\nx"),)))
    compact_all(world)
    (row,) = world.rows("SELECT message_id FROM message_copies WHERE provider_key = 'key'")
    assert row.message_id == message_uuid(hashlib.sha256(b"Subject: committed\r\n\r\nx").digest())
    assert read_all(world) == 2


def test_every_pack_of_the_archive_is_known_after_compaction(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    compact_all(world)
    known = {row.id for row in world.rows("SELECT id FROM packs WHERE removed_at IS NULL")}
    assert {UUID(path.stem) for path in world.folder.glob("*.pack")} == known
    kinds = {row.kind for row in world.rows("SELECT DISTINCT kind FROM objects")}
    assert FrameKind.MESSAGE.label in kinds
