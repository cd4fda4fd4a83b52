"""Rebuild brings everything back from the packs alone, and names what it could not read."""

import base64
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from archiver.access.login import totp
from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.tables import uuid7
from archiver.errors import UsageError, WrongKey
from archiver.indexing.texts import read_text, store_texts
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.dump import load_dump
from archiver.maintenance.backups.restore import Backup, check_empty, restore_packs
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import restore_config, save_config
from archiver.secrets import Keyring
from archiver.store.journal import Config
from connectors.base import Batch, ChangeKind, CopyChange
from tests.integration.store.conftest import SECOND, SOURCE, World
from tests.integration.store.filled import NOW, fill, messages_of, read_all


@pytest.mark.parametrize(("limit", "processes"), [(40_000, 1), (256 << 20, 1), (40_000, 3), (256 << 20, 3)])
def test_rebuild_equals_the_original(
    world: World, new_world: Callable[..., World], limit: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In packs of any size, by one process or by several that get few messages each, with parts that others have read."""
    monkeypatch.setattr("archiver.maintenance.recovery.rebuild._SEGMENT", 7)
    world.limit_bytes = limit
    fill(world)
    expected = world.content()
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    result = rebuild(rebuilt.engine, rebuilt.archive, processes=processes)
    assert result.damage == []
    assert result.lost_copies == 0
    assert rebuilt.content() == expected
    assert read_all(rebuilt) == len(expected["messages"])
    assert verify(rebuilt.engine, rebuilt.archive, full=True).problems == []
    again = rebuilt.open()
    assert again.store_batch(rebuilt.origin(), Batch(messages_of(4, 10, 20))).archived == 0  # deleted ones stay deleted
    assert again.store_batch(rebuilt.origin(), Batch(messages_of(99))).archived == 1
    with pytest.raises(UsageError, match="empty database"):
        rebuild(rebuilt.engine, rebuilt.archive)


def test_rebuild_follows_the_journal_from_pack_to_pack(world: World, new_world: Callable[..., World]) -> None:
    """Two writers: copies in the older pack of messages in the younger one, and what happened to them, in its order."""
    one, two = world.open(), world.open()
    first, second = world.origin(), world.origin(SECOND)
    one.store_batch(first, Batch(messages_of(1)))
    two.store_batch(first, Batch(messages_of(2, 5)))
    one.store_batch(second, Batch(messages_of(2, 5)))
    two.store_batch(second, Batch(changes=(CopyChange(ChangeKind.MOVED, "k2", "Old"), CopyChange(ChangeKind.GONE, "k5"))))
    one.store_batch(second, Batch(changes=(CopyChange(ChangeKind.MOVED, "k2", "New"),)))
    assert len(list(world.folder.iterdir())) == 2
    expected = world.content()
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    result = rebuild(rebuilt.engine, rebuilt.archive)
    assert (result.damage, result.lost_copies, result.copies) == ([], 0, 5)
    assert rebuilt.content() == expected
    assert {row.folder for row in rebuilt.rows("SELECT folder FROM message_copies WHERE provider_key = 'k2'")} == {
        "INBOX",
        "New",
    }


def test_rebuild_brings_back_what_is_set_up(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE ingestion_sources SET settings = '{\"folders\": [\"INBOX\"]}', name = 'renamed'"))
        connection.execute(text("INSERT INTO users (id, email, role) VALUES (:i, 'eve@x.org', 'auditor')"), {"i": uuid7()})
    save_config(world.engine, world.archive)
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    (source,) = rebuilt.rows("SELECT * FROM ingestion_sources")
    assert (source.id, source.name, source.settings) == (SOURCE, "renamed", {"folders": ["INBOX"]})
    assert (source.status, source.credentials) == ("paused", None)
    assert rebuilt.value("SELECT role FROM users WHERE email = 'eve@x.org'") == "auditor"


def test_rebuild_brings_second_factors_back(world: World, new_world: Callable[..., World]) -> None:
    keyring, user_id = Keyring({"c": b"c" * 32}), uuid7()
    who = dataclasses.replace(LOCAL_OPERATOR, user_id=user_id)
    fill(world)
    with world.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO users (id, email) VALUES (:i, 'eve@x.org'), (:j, 'j@x.org')"), {"i": user_id, "j": uuid7()}
        )
        secret = base64.b32decode(totp.begin(connection, keyring, who)["secret"])
        codes = totp.confirm(connection, keyring, who, totp.code_at(secret, totp.current_step()))
        sealed = connection.execute(text("SELECT totp_secret FROM users WHERE id = :i"), {"i": user_id}).scalar_one()
        assert totp.check(connection, keyring, user_id, sealed, codes[0])
    save_config(world.engine, world.archive)
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    with rebuilt.engine.begin() as connection:
        row = connection.execute(text("SELECT totp_secret, totp_confirmed_at FROM users WHERE id = :i"), {"i": user_id}).one()
        assert row.totp_confirmed_at is not None
        assert keyring.unseal(row.totp_secret, totp.purpose(user_id)) == secret
        assert not totp.check(connection, keyring, user_id, row.totp_secret, codes[0]), "it was used before"
        assert totp.check(connection, keyring, user_id, row.totp_secret, codes[1])
        assert connection.execute(text("SELECT totp_secret FROM users WHERE email = 'j@x.org'")).scalar_one() is None


def test_a_snapshot_of_an_earlier_version_is_restored(world: World) -> None:
    """Without the columns that came later."""
    row = {"id": str(uuid7()), "email": "old@x.org", "role": "user", "may_read_all": False, "settings": {}}
    whole = {**row, "address_verified_at": None, "name": None, "password_hash": None, "disabled_at": None}
    with world.engine.begin() as connection:
        restore_config(connection, Config(datetime.now(UTC), {"users": [{**whole, "created_at": "2024-01-01T00:00:00+00:00"}]}))
    assert world.value("SELECT recovery_code_hashes FROM users WHERE email = 'old@x.org'") == []


@pytest.mark.parametrize("processes", [1, 2])
def test_rebuild_goes_past_damage_and_tells_it(world: World, new_world: Callable[..., World], processes: int) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    spot = world.rows("SELECT position FROM objects WHERE kind = 'message' ORDER BY position OFFSET 7 LIMIT 1")[0].position
    data = bytearray(path.read_bytes())
    data[spot + 90] ^= 1
    path.write_bytes(data)
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    result = rebuild(rebuilt.engine, rebuilt.archive, processes=processes)
    assert len(result.damage) == 1
    assert str(spot) in result.damage[0]
    assert result.lost_copies >= 1
    assert result.messages == world.value("SELECT count(*) FROM messages") - 1


@pytest.mark.parametrize("processes", [1, 2])
def test_rebuild_with_a_lost_key_is_one_clear_error(world: World, new_world: Callable[..., World], processes: int) -> None:
    fill(world)
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.keyring = Keyring({"other": b"o" * 32})
    rebuilt.open()
    with pytest.raises(WrongKey, match=rebuilt.keyring.active):
        rebuild(rebuilt.engine, rebuilt.archive, processes=processes)


def test_a_compacted_archive_is_rebuilt_alike(world: World, new_world: Callable[..., World]) -> None:
    world.limit_bytes = 30_000
    fill(world)
    compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    expected = world.content()
    world.archive.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    assert rebuild(rebuilt.engine, rebuilt.archive).damage == []
    assert rebuilt.content() == expected


def test_backup_is_incremental_and_restores_to_the_same(world: World, new_world: Callable[..., World], tmp_path: Path) -> None:
    world.limit_bytes = 60_000
    fill(world)
    url = world.engine.url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql")
    first = backup(world.engine, world.archive, url, FolderTarget(tmp_path / "backup"))
    assert first.packs == first.copied > 1
    world.open().store_batch(world.origin(), Batch(messages_of(200, 201)))
    second = backup(world.engine, world.archive, url, FolderTarget(tmp_path / "backup"))
    assert second.copied <= 2 < second.packs
    expected = world.content()
    kept = Backup.open(FolderTarget(tmp_path / "backup"), tmp_path / "scratch")
    restored = new_world(empty=True)
    restored.open()
    assert restore_packs(kept, restored.archive).packs == second.packs
    first_pack = next(restored.folder.iterdir())
    first_pack.unlink()
    assert restore_packs(kept, restored.archive).packs == second.packs  # goes on where it was interrupted
    assert first_pack.exists()
    check_empty(restored.engine)
    assert kept.reason_to_rebuild(restored.archive.keys) is None
    load_dump(
        tmp_path / "backup" / kept.manifest.dump,
        restored.engine.url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql"),
        restored.archive.keys,
    )
    restored.engine.dispose()
    restored.open()
    assert restored.content() == expected
    assert read_all(restored) == len(expected["messages"])
    assert verify(restored.engine, restored.archive, full=True).problems == []
    assert not any(b"k" * 32 in path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file())


def test_extracted_text_is_kept_once_and_survives_a_rebuild(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    first = store_texts(world.engine, world.archive, ["text of a page", "another", "text of a page"])
    assert store_texts(world.engine, world.archive, ["text of a page"]) == first[:1] == first[2:]
    assert read_text(world.archive, first[0]) == "text of a page"
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert read_text(rebuilt.archive, first[1]) == "another"
