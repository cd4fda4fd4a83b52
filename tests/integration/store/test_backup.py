"""A backup is of one moment, whatever compaction does meanwhile; it is sealed, and it drops nothing that is not replaced."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import text

from archiver.errors import ArchiverError, UsageError, WrongKey
from archiver.maintenance.backups import backup as backup_module
from archiver.maintenance.backups.backup import BackedUp, backup
from archiver.maintenance.backups.dump import dump_pieces, load_dump
from archiver.maintenance.backups.manifest import MANIFEST
from archiver.maintenance.backups.pack_removal import keep_files, remove_retired
from archiver.maintenance.backups.restore import Backup, restore_packs
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.retention.delete import delete_message
from archiver.secrets import Keyring
from archiver.store.errors import Damage
from archiver.store.keys import PackKeys
from archiver.store.sealed_file import seal_pieces, unseal_pieces
from connectors.base import Batch
from tests.integration.store.conftest import World
from tests.integration.store.filled import NOW, fill, id_of, messages_of, read_all


def url_of(world: World) -> str:
    return world.engine.url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql")


def back_up(world: World, target: Path, keep: int = 1) -> BackedUp:
    return backup(world.engine, world.archive, url_of(world), FolderTarget(target), keep=keep)


def opened(target: Path, name: str | None = None) -> Backup:
    return Backup.open(FolderTarget(target), target.parent / "scratch", name)


def dump_of(kept: Backup) -> Path:
    with kept.dump_file() as path:
        return path


def compact_all(world: World) -> None:
    for _ in range(2):  # the second one removes the files that the first one has replaced
        compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)


def bring_back(target: Path, world: World) -> World:
    return bring_back_from(opened(target), world)


def bring_back_from(kept: Backup, world: World) -> World:
    world.open()
    assert restore_packs(kept, world.archive).damage == []
    assert kept.reason_to_rebuild(world.archive.keys) is None
    with kept.dump_file() as dump:
        load_dump(dump, url_of(world), world.archive.keys)
    world.engine.dispose()
    world.open()
    return world


@contextmanager
def after_the_dump(monkeypatch: pytest.MonkeyPatch, run: Callable[[], None]) -> Iterator[None]:
    def dump_and_run(*arguments: Any) -> Iterator[bytes]:
        yield from dump_pieces(*arguments)
        run()

    with monkeypatch.context() as patched:
        patched.setattr(backup_module, "dump_pieces", dump_and_run)
        yield


def test_a_backup_while_compaction_commits_has_every_pack_of_its_dump(
    world: World, new_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limit_bytes = 40_000
    fill(world)
    expected = world.content()
    other = World(world.engine, world.folder)
    other.open()

    def compact_meanwhile() -> None:
        compact_all(other)
        assert world.value("SELECT count(*) FROM packs WHERE state = 'retired'") > 1

    with after_the_dump(monkeypatch, compact_meanwhile):
        back_up(world, tmp_path / "backup")
    other.archive.close()
    restored = bring_back(tmp_path / "backup", new_world(empty=True))
    assert restored.content() == expected
    assert read_all(restored) == len(expected["messages"])
    back_up(world, tmp_path / "backup")
    live = {row.name for row in world.rows("SELECT name FROM packs WHERE state <> 'retired'")}
    assert {path.name for path in (tmp_path / "backup" / "packs").iterdir()} == live


def test_files_of_replaced_packs_stay_while_a_backup_runs(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    with keep_files(world.engine):
        assert remove_retired(world.engine, world.archive, NOW) == 0
    assert remove_retired(world.engine, world.archive, NOW) > 1
    assert remove_retired(world.engine, world.archive, NOW) == 0


def test_only_packs_that_the_database_retired_leave_the_backup(world: World, tmp_path: Path) -> None:
    world.limit_bytes = 40_000
    fill(world)
    before = {path.name for path in world.folder.glob("*.pack")}
    back_up(world, tmp_path / "backup")
    folder = tmp_path / "backup" / "packs"
    unknown = shutil.copy(next(iter(folder.iterdir())), folder / "01900000-0000-7000-8000-0000000000aa.pack")
    compact_all(world)
    done = back_up(world, tmp_path / "backup")
    left = {path.name for path in folder.iterdir()}
    assert not left & before
    assert Path(unknown).name in left
    assert (done.packs, done.kept) == (1, 1)


def test_a_pack_that_the_database_does_not_know_is_copied(world: World, tmp_path: Path) -> None:
    fill(world)
    (path,) = world.folder.iterdir()
    unknown = path.with_name("01900000-0000-7000-8000-0000000000aa.pack")
    shutil.copy(path, unknown)
    back_up(world, tmp_path / "backup")
    assert (tmp_path / "backup" / "packs" / unknown.name).exists()


def test_a_backup_is_for_its_owner_and_sealed(world: World, tmp_path: Path) -> None:
    fill(world)
    target = tmp_path / "backup"
    (target / "packs").mkdir(parents=True, mode=0o755)
    back_up(world, target)
    back_up(world, target)
    assert [oct(path.stat().st_mode & 0o777) for path in (target, target / "packs")] == ["0o700"] * 2
    assert {oct(path.stat().st_mode & 0o777) for path in target.rglob("*") if path.is_file()} == {"0o600"}
    (dump,) = target.glob("*.dump")
    assert not any(word in dump.read_bytes() for word in (b"alice@example.org", b"Invoice", b"PGDMP"))
    assert b"".join(unseal_pieces(world.archive.keys, dump)).startswith(b"PGDMP")
    with pytest.raises(WrongKey):
        opened(target).reason_to_rebuild(PackKeys(Keyring({"other": b"o" * 32})))


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_a_sealed_file_opens_only_as_a_whole(tmp_path: Path, size: int) -> None:
    keys, path, content = PackKeys(Keyring.generate()), tmp_path / "x.dump", hashlib.shake_128(b"x").digest(size)
    path.write_bytes(b"".join(seal_pieces(keys.active, [content])))
    assert b"".join(unseal_pieces(keys, path)) == content
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:20], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(Damage):
            b"".join(unseal_pieces(keys, path))


def test_a_changed_dump_loads_nothing_and_asks_for_a_rebuild(
    world: World, new_world: Callable[..., World], tmp_path: Path
) -> None:
    fill(world)
    back_up(world, tmp_path / "backup")
    kept = opened(tmp_path / "backup")
    data = bytearray(dump_of(kept).read_bytes())
    data[-5] ^= 1
    dump_of(kept).write_bytes(data)
    empty = new_world(empty=True)
    empty.open()
    with pytest.raises(Damage, match="changed or truncated"):
        load_dump(dump_of(kept), url_of(empty), empty.archive.keys)
    assert empty.rows("SELECT 1 FROM messages") == []
    dump_of(kept).write_bytes(b"ARCHDUMP")
    assert "truncated" in (kept.reason_to_rebuild(empty.archive.keys) or "")


def test_a_backup_of_an_older_version_is_restored(world: World, new_world: Callable[..., World], tmp_path: Path) -> None:
    fill(world)
    target = tmp_path / "backup"
    back_up(world, target)
    kept = opened(target)
    (target / "database.dump").write_bytes(b"".join(unseal_pieces(world.archive.keys, dump_of(kept))))
    dump_of(kept).unlink()
    manifest = orjson.loads((target / MANIFEST).read_bytes())
    del manifest["dump"]
    (target / MANIFEST).write_bytes(orjson.dumps(manifest))
    restored = bring_back(target, new_world(empty=True))
    assert restored.content() == world.content()
    back_up(world, target)  # a newer backup over it
    assert len(list(target.glob("*.dump"))) == 1
    assert opened(target).manifest.dump != "database.dump"


def test_an_interrupted_backup_leaves_the_one_before(world: World, new_world: Callable[..., World], tmp_path: Path) -> None:
    world.limit_bytes = 40_000
    fill(world)
    expected = world.content()
    target = tmp_path / "backup"
    back_up(world, target)
    world.open().store_batch(world.origin(), Batch(messages_of(*range(100, 140))))
    delete_message(world.engine, world.archive, id_of(20), "asked for")
    compact_all(world)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup(world.engine, world.archive, url_of(world), FolderTarget(target), stop)
    restored = bring_back(target, new_world(empty=True))
    assert restored.content() == expected
    assert read_all(restored) == len(expected["messages"])


def test_a_backup_that_lacks_a_pack_asks_for_a_rebuild(world: World, tmp_path: Path) -> None:
    world.limit_bytes = 40_000
    fill(world)
    back_up(world, tmp_path / "backup")
    kept = opened(tmp_path / "backup")
    assert kept.reason_to_rebuild(world.archive.keys) is None
    lost, short = sorted((tmp_path / "backup" / "packs").iterdir())[:2]
    lost.unlink()
    short.write_bytes(short.read_bytes()[:-100])
    assert (kept.reason_to_rebuild(world.archive.keys) or "").startswith("the backup lacks 2 packs of its dump (0")
    manifest = orjson.loads((tmp_path / "backup" / MANIFEST).read_bytes())
    manifest["packs"] = []  # as it was written while compaction committed
    (tmp_path / "backup" / MANIFEST).write_bytes(orjson.dumps(manifest))
    assert (opened(tmp_path / "backup").reason_to_rebuild(world.archive.keys) or "").startswith("the backup lacks 2 ")


def test_damage_here_does_not_reach_the_copy_there(world: World, tmp_path: Path) -> None:
    world.limit_bytes = 40_000
    fill(world)
    back_up(world, tmp_path / "backup")
    sealed_pack = world.rows("SELECT id, name FROM packs WHERE state = 'sealed' ORDER BY id")[0]
    path, copy = world.folder / sealed_pack.name, tmp_path / "backup" / "packs" / sealed_pack.name
    good = copy.read_bytes()
    path.chmod(0o600)
    path.write_bytes(good[:-30] + bytes(30))
    back_up(world, tmp_path / "backup")
    assert copy.read_bytes() == good
    path.write_bytes(good[:1000])
    with pytest.raises(ArchiverError, match="is truncated"):
        back_up(world, tmp_path / "backup")
    path.unlink()
    with pytest.raises(ArchiverError, match="1 pack missing"):
        back_up(world, tmp_path / "backup")


def test_rows_of_removed_packs_stay_and_are_in_nobodys_way(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    before = {UUID(path.stem) for path in world.folder.glob("*.pack")}
    compact_all(world)
    removed = {row.id for row in world.rows("SELECT id FROM packs WHERE removed_at IS NOT NULL")}
    assert removed == before
    assert verify(world.engine, world.archive, full=True).problems == []
    with world.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM packs WHERE state <> 'retired'")).scalar_one() == 1


def test_restore_refuses_packs_of_others_and_wrong_keys_before_it_copies(
    world: World, new_world: Callable[..., World], tmp_path: Path
) -> None:
    fill(world)
    back_up(world, tmp_path / "backup")
    kept = opened(tmp_path / "backup")
    other = new_world()
    other.open().store_batch(other.origin(), Batch(messages_of(1)))
    with pytest.raises(UsageError, match="already has packs"):
        restore_packs(kept, other.archive)
    stranger = new_world(empty=True)
    stranger.keyring = Keyring({"other": b"o" * 32})
    stranger.open()
    with pytest.raises(WrongKey, match="'test'"):
        restore_packs(kept, stranger.archive)
    assert list(stranger.folder.iterdir()) == []


# several backups in one place
