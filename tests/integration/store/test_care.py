"""Care of the archive: verify finds what is broken, rebuild brings everything back, compaction and deletion lose nothing."""

import base64
import dataclasses
import hashlib
import multiprocessing
import os
import random
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import orjson
import pytest
from sqlalchemy import text

from archiver.access.login import totp
from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.engine import make_engine
from archiver.db.tables import message_uuid, uuid7
from archiver.errors import UsageError, WrongKey
from archiver.indexing.texts import read_text, store_texts
from archiver.maintenance.backup import backup
from archiver.maintenance.compact import compact
from archiver.maintenance.dump import load_dump
from archiver.maintenance.rebuild import rebuild
from archiver.maintenance.restore import Backup, check_empty, restore_packs
from archiver.maintenance.snapshot import restore_config, save_config
from archiver.maintenance.verify import verify
from archiver.reading.export import export, raw_message
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.secrets import Keyring
from archiver.store.capacity import NoRoom
from archiver.store.errors import NotStored, StoreUnavailable
from archiver.store.journal import Config
from archiver.store.keys import PackKeys
from archiver.store.pack import SEAL_BYTES, Seal
from archiver.sync.ingest.store_batch import Ingest
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import MAILBOX, SECOND, SOURCE, World
from tests.support.store_world import Failing, mail
from tests.support.waiting import DEADLINE_SECONDS, eventually

ATTACHMENT = random.Random(7).randbytes(60_000)
NOW = timedelta(0)


def messages_of(*numbers: int) -> tuple[RawMessage, ...]:
    received = datetime(2024, 3, 1, tzinfo=UTC)
    return tuple(
        RawMessage(
            f"k{number}",
            mail(number, attachment=ATTACHMENT if number % 5 == 0 else None),
            folder="INBOX",
            labels=("ä",),
            received_at=received + timedelta(minutes=number),
        )
        for number in numbers
    )


def fill(world: World) -> None:
    ingest = world.open()
    for start in range(0, 60, 20):
        ingest.store_batch(world.origin(), Batch(messages_of(*range(start, start + 20))))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(1, 5, 70)))
    changes = (
        CopyChange(ChangeKind.MOVED, "k1", folder="Old", new_provider_key="Old1"),
        CopyChange(ChangeKind.GONE, "k2"),
        CopyChange(ChangeKind.RELABELLED, "k3", labels=("new",), flags=("\\Seen",)),
    )
    ingest.store_batch(world.origin(), Batch(changes=changes))
    delete_message(world.engine, world.archive, id_of(4), "asked for")
    delete_message(world.engine, world.archive, id_of(10), "asked for, with an attachment")


def id_of(number: int) -> UUID:
    return message_uuid(hashlib.sha256(messages_of(number)[0].data or b"").digest())


def read_all(world: World) -> int:
    rows = world.rows("SELECT sha256 FROM messages")
    for row in rows:
        assert hashlib.sha256(world.archive.read(bytes(row.sha256))).digest() == bytes(row.sha256)
    return len(rows)


# verify


@pytest.mark.parametrize("full", [False, True])
def test_a_whole_archive_is_healthy(world: World, full: bool) -> None:
    world.limit_bytes = 60_000
    fill(world)
    seen: list[tuple[int, int]] = []
    report = verify(world.engine, world.archive, full=full, progress=lambda done, total: seen.append((done, total)))
    assert report.problems == []
    assert report.packs == len(list(world.folder.iterdir())) > 1
    assert seen[-1][0] == seen[-1][1]
    if full:
        live = world.value("SELECT sum(size_bytes) FROM messages")
        assert report.raw_bytes >= live
    again = verify(world.engine, world.archive, full=full, since=datetime(2020, 1, 1, tzinfo=UTC))
    assert (again.packs, again.packs_skipped) == (0, report.packs)


@pytest.mark.parametrize("full", [False, True])
def test_flipped_bits_in_every_region_of_a_sealed_pack_are_found(world: World, full: bool) -> None:
    world.limit_bytes = 90_000
    fill(world)
    world.archive.close()
    path = next(path for path in sorted(world.folder.iterdir()) if not path.stat().st_mode & 0o200)
    path.chmod(0o600)
    whole = path.read_bytes()
    positions = {row.position: row for row in world.rows("SELECT * FROM objects WHERE pack_id = :p", p=UUID(path.stem))}
    places = [3, 9, 20, 40, 78, *range(100, len(whole), len(whole) // 40), len(whole) - 50, len(whole) - 20, len(whole) - 2]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        world.open()
        try:
            report = verify(world.engine, world.archive, full=full)
            assert not report.is_healthy, place
            hit = [row for at, row in positions.items() if at <= place < at + row.stored_bytes and row.kind == "message"]
            told = {message_id for problem in report.problems for message_id in problem.messages}
            live = {row.id for row in world.rows("SELECT id FROM messages")}
            assert {message_uuid(bytes(row.sha256)) for row in hit} & live <= told
        except WrongKey:
            assert place < 80  # the key's fingerprint in the header of the pack
        world.archive.close()


@pytest.mark.parametrize("full", [False, True])
def test_several_processes_find_what_one_finds(world: World, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With segments of a few frames, whole and damaged, also where one segment ends and the next begins."""
    monkeypatch.setattr("archiver.maintenance.verify_segment.SEGMENT_BYTES", 3_000)
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    path.chmod(0o600)
    whole = path.read_bytes()
    frames = [row.position for row in world.rows("SELECT position FROM objects ORDER BY position")]
    damaged = [[], [frames[3]], [frames[4] + 100], frames[5:40:5], [frames[-1] + 10]]
    for places in damaged:
        content = bytearray(whole)
        for place in places:
            content[place] ^= 0x10
        path.write_bytes(content)
        world.open()
        one, several = (verify(world.engine, world.archive, full=full, processes=processes) for processes in (1, 3))
        assert one == several
        assert len(one.problems) >= len(places)
        world.archive.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process verifies")
@pytest.mark.parametrize(("segment_bytes", "verified"), [(1, 0), (4 << 20, 1)])
def test_a_verification_that_loses_a_process_has_verified_only_what_was_read(
    world: World, segment_bytes: int, verified: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two packs: killed when one of many segments of the first was read, and when all of it was."""
    monkeypatch.setattr("archiver.maintenance.verify_segment.SEGMENT_BYTES", segment_bytes)
    world.limit_bytes = 40_000
    fill(world)
    whole, started = verify(world.engine, world.archive, full=True, processes=1), world.value("SELECT now()")

    def kill_one(done: int, total: int) -> None:
        """And waits until that was noticed: the others are ended, too."""
        children = multiprocessing.active_children()
        if children:
            children[0].kill()
        eventually(lambda: not any(child.is_alive() for child in children), what="the end of the others", pause=0.01)

    with pytest.raises(StoreUnavailable, match=r"a process that read the packs was killed: run the command again"):
        verify(world.engine, world.archive, full=True, progress=kill_one, processes=2)
    assert world.value("SELECT count(*) FROM packs WHERE verified_at > :started", started=started) == verified
    rest = verify(world.engine, world.archive, full=True, since=started, processes=2)
    assert (rest.packs, rest.packs_skipped, rest.problems) == (2 - verified, verified, [])
    assert (rest.frames == whole.frames) is (verified == 0)


def test_lost_packs_dictionaries_and_objects_are_named(world: World) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    moved = path.rename(path.with_suffix(".away"))
    world.open()
    report = verify(world.engine, world.archive)
    assert report.problems[0].what == "the pack is missing"
    assert len(report.problems[0].messages) == world.value("SELECT count(*) FROM messages")
    moved.rename(path)
    os.truncate(path, path.stat().st_size - 3000)
    report = verify(world.engine, world.archive)
    assert any("too short" in problem.what for problem in report.problems)
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM objects WHERE sha256 = (SELECT sha256 FROM messages LIMIT 1)"))
    report = verify(world.engine, world.archive)
    assert any("1 message in no pack" in problem.what for problem in report.problems)


def test_the_tail_of_an_unfinished_batch_is_no_damage(world: World) -> None:
    fill(world)
    world.archive.close()
    (path,) = world.folder.iterdir()
    with path.open("ab") as file:
        file.write(b"\xf6AF\x1e half a frame")
    world.open()
    report = verify(world.engine, world.archive, full=True)
    assert report.is_healthy
    assert any("unfinished batch" in note for note in report.notes)


def resealed(path: Path, seal: Callable[[Seal, bytes], Seal]) -> Seal:
    whole = path.read_bytes()
    old = Seal.decode(whole[-SEAL_BYTES:])
    assert old is not None
    new = seal(old, hashlib.sha256(whole[:-SEAL_BYTES]).digest())
    path.chmod(0o600)
    path.write_bytes(whole[:-SEAL_BYTES] + new.encode())
    return new


def test_a_pack_that_an_older_version_sealed_is_valid(world: World) -> None:
    world.limit_bytes = 40_000
    fill(world)
    name = world.value("SELECT name FROM packs WHERE state = 'sealed' ORDER BY id LIMIT 1")
    plain = resealed(world.folder / name, lambda old, digest: Seal(old.index_offset, old.frames, digest, is_keyed=False))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE packs SET sha256 = :digest WHERE name = :name"), {"digest": plain.digest, "name": name})
    assert verify(world.engine, world.archive, full=True).problems == []
    path = world.folder / name
    path.write_bytes(path.read_bytes()[:-70] + b"x" + path.read_bytes()[-69:])
    assert not verify(world.engine, world.archive).is_healthy


@pytest.mark.parametrize("keyed", [False, True])
def test_a_pack_that_was_sealed_again_without_the_key_is_found(world: World, keyed: bool) -> None:
    world.limit_bytes = 40_000
    fill(world)
    path = world.folder / world.value("SELECT name FROM packs WHERE state = 'sealed' ORDER BY id LIMIT 1")
    stranger = PackKeys(Keyring({"test": b"x" * 32})).active
    resealed(
        path,
        lambda old, digest: (
            Seal.keyed(stranger, old.index_offset, old.frames, digest)
            if keyed
            else Seal(old.index_offset, old.frames, digest, is_keyed=False)
        ),
    )
    report = verify(world.engine, world.archive)
    assert [problem.what for problem in report.problems] == ["the digest of the whole pack is wrong"]


def test_a_lost_key_is_one_clear_error(world: World) -> None:
    fill(world)
    world.archive.close()
    world.keyring = Keyring({"other": b"o" * 32})
    world.open()
    with pytest.raises(WrongKey, match="'test'"):
        verify(world.engine, world.archive)


# rebuild


@pytest.mark.parametrize(("limit", "processes"), [(40_000, 1), (256 << 20, 1), (40_000, 3), (256 << 20, 3)])
def test_rebuild_equals_the_original(
    world: World, new_world: Callable[..., World], limit: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In packs of any size, by one process or by several that get few messages each, with parts that others have read."""
    monkeypatch.setattr("archiver.maintenance.rebuild._SEGMENT", 7)
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


# deletion


def test_a_deleted_message_is_gone_and_no_sync_brings_it_back(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(1)))
    done = delete_message(world.engine, world.archive, id_of(1), "personal")
    assert (done.copies, done.messages) == (2, 1)
    with pytest.raises(NotStored):
        world.archive.read(hashlib.sha256(messages_of(1)[0].data or b"").digest())
    assert ingest.store_batch(world.origin(), Batch(messages_of(1, 2))).archived == 0
    assert ingest.known(MAILBOX, ["k1"]) == {"k1"}
    rows = world.rows("SELECT deleted_reason, message_id FROM message_copies WHERE deleted_at IS NOT NULL")
    assert [(row.deleted_reason, row.message_id) for row in rows] == [("personal", None)] * 2
    with pytest.raises(UsageError, match="there is no message"):
        delete_message(world.engine, world.archive, id_of(1), "again")
    with pytest.raises(UsageError, match="reason"):
        delete_message(world.engine, world.archive, id_of(2), " ")


def test_a_part_goes_with_its_last_message_and_a_message_with_its_last_copy(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(5, 10)))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(10)))
    assert delete_mailbox_mail(world.engine, world.archive, MAILBOX, "left the company").copies == 2
    assert read_all(world) == 1
    assert world.value("SELECT count(*) FROM objects WHERE kind = 'part'") == 1
    assert delete_message(world.engine, world.archive, id_of(10), "all of it").messages == 1
    assert world.value("SELECT count(*) FROM objects WHERE kind IN ('part', 'message')") == 0
    again = Batch((RawMessage("new", messages_of(10)[0].data),))
    assert ingest.store_batch(world.origin(SECOND), again).deleted_here == 1
    assert read_all(world) == 0


_WAIT = """
    CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'archiver-slow' THEN
            PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::bigint);
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait BEFORE INSERT ON messages FOR EACH STATEMENT EXECUTE FUNCTION wait_for_test(1);
    CREATE TRIGGER wait BEFORE INSERT ON message_copies FOR EACH STATEMENT EXECUTE FUNCTION wait_for_test(2)"""


def test_a_message_that_others_add_and_delete_meanwhile_is_no_copy_of_nothing(world: World) -> None:
    """Nothing but our own locks keeps the message of a copy."""
    ingest = world.open()
    outcome: list[object] = []
    slow_engine = make_engine(world.engine.url.render_as_string(hide_password=False), "slow")
    slow = Ingest(slow_engine, world.archive)

    def store_slowly() -> None:
        try:
            outcome.append(slow.store_batch(world.origin(SECOND), Batch(messages_of(1))))
        except StoreUnavailable as error:
            outcome.append(error)

    with world.engine.begin() as connection:
        connection.exec_driver_sql(_WAIT)
    with world.engine.connect() as gate:
        gate.exec_driver_sql("SELECT pg_advisory_lock(1), pg_advisory_lock(2)")
        thread = threading.Thread(target=store_slowly)
        thread.start()
        until_it_waits_for(world, 1)
        ingest.store_batch(world.origin(), Batch(messages_of(1)))
        gate.exec_driver_sql("SELECT pg_advisory_unlock(1)")
        until_it_waits_for(world, 2)
        assert delete_message(world.engine, world.archive, id_of(1), "personal").messages == 1
        gate.exec_driver_sql("SELECT pg_advisory_unlock(2)")
        thread.join(DEADLINE_SECONDS)
    assert [str(item) for item in outcome] == [
        "another process stored and deleted a message of this batch in the meantime: try again"
    ]
    assert world.value("SELECT count(*) FROM message_copies WHERE message_id IS NOT NULL") == 0
    assert slow.store_batch(world.origin(SECOND), Batch(messages_of(1))).archived == 1
    assert read_all(world) == 1
    assert verify(world.engine, world.archive, full=True).is_healthy
    slow_engine.dispose()


def until_it_waits_for(world: World, lock: int) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :lock AND NOT granted"
    eventually(lambda: world.value(waiting, lock=lock), what=f"somebody who waits for lock {lock}", pause=0.01)


def test_a_copy_without_its_message_is_found(world: World) -> None:
    world.open().store_batch(world.origin(), Batch(messages_of(1, 2)))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE message_copies SET message_id = :other WHERE provider_key = 'k1'"), {"other": uuid7()})
    report = verify(world.engine, world.archive)
    assert [problem.what for problem in report.problems] == ["1 copy of messages that do not exist"]


# compaction


def test_compaction_drops_what_was_deleted_and_merges_small_packs(world: World) -> None:
    world.limit_bytes = 30_000
    fill(world)
    delete_mailbox_mail(world.engine, world.archive, MAILBOX, "left")
    before, size = world.content(), sum(path.stat().st_size for path in world.folder.iterdir())
    done = compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    assert done.packs_after == 1 < done.packs_before
    assert done.bytes_after < done.bytes_before
    assert world.content() == before
    assert read_all(world) == len(before["messages"])
    done = compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    assert done.removed > 1
    assert world.value("SELECT sum(size_bytes) FROM packs WHERE state <> 'retired'") < size
    assert verify(world.engine, world.archive, full=True).problems == []
    deleted = hashlib.sha256(messages_of(4)[0].data or b"").digest()
    tags = {world.archive.keys.active.content_tag(deleted)}
    for pack_id in world.archive.backend.packs():
        pack = world.archive.backend.open(pack_id)
        assert not any(tag in pack.read_at(0, pack.size) for tag in tags)


def test_what_is_compacted_is_not_written_again(world: World) -> None:
    """Small messages, so that much of the pack is journal; nothing is deleted."""
    ingest = world.open()
    for number in range(60):
        small = RawMessage(f"INBOX:{number}", data=f"Subject: {number}\r\n\r\nhello\r\n".encode(), folder="INBOX")
        ingest.store_batch(world.origin(), Batch((small,)))
    world.archive.close()
    world.open()
    compact(world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=NOW, rest_seconds=0)
    (pack,) = world.rows("SELECT id, size_bytes FROM packs WHERE state = 'sealed'")
    live = world.value("SELECT sum(stored_bytes) FROM objects WHERE pack_id = :id", id=pack.id)
    assert live < 0.8 * pack.size_bytes, "the journal does not show in this test"
    done = compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    assert (done.packs_before, done.packs_after) == (0, 0)
    assert world.rows("SELECT id FROM packs WHERE state = 'sealed'") == [(pack.id,)]
    delete_mailbox_mail(world.engine, world.archive, MAILBOX, "left")
    world.archive.close()
    world.open()
    compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
    assert world.value("SELECT state FROM packs WHERE id = :id", id=pack.id) != "sealed"


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


def test_rekey_leaves_the_old_key_without_use(world: World) -> None:
    world.limit_bytes = 60_000
    fill(world)
    before, old = world.content(), world.keyring
    world.archive.close()
    world.keyring = Keyring({**Keyring.generate().keys, **old.keys})
    world.open()
    compact(world.engine, world.archive, world.folder / "scratch", rekey=True, keep_retired=NOW, rest_seconds=0)
    compact(world.engine, world.archive, world.folder / "scratch", rekey=True, keep_retired=NOW, rest_seconds=0)
    world.archive.close()
    world.keyring = Keyring({world.keyring.active: world.keyring.keys[world.keyring.active]})
    world.open()
    assert world.content() == before
    assert read_all(world) == len(before["messages"])
    assert verify(world.engine, world.archive, full=True).problems == []


def test_compaction_that_is_aborted_anywhere_loses_nothing(new_world: Callable[..., World]) -> None:
    fail_at = 0
    while True:
        world = new_world()
        world.limit_bytes = 60_000
        fill(world)
        before = world.content()
        world.archive.close()
        files = Failing(fail_at)
        world.open(files)
        failed = False
        try:
            compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
            compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
        except Exception:
            failed = True
        world.archive.close()
        world.open()
        assert world.content() == before
        assert read_all(world) == len(before["messages"])
        compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0)
        assert verify(world.engine, world.archive, full=True).problems == []
        world.close()
        fail_at += 1
        if not failed and fail_at > files.count:
            break
    assert fail_at > 3


def test_compaction_while_others_write_and_read(world: World) -> None:
    world.limit_bytes = 50_000
    fill(world)
    ingest, stop, errors = world.open(), threading.Event(), []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    numbers = iter(range(1000, 1_000_000, 5))
    threads = [
        guarded(lambda: void(ingest.store_batch(world.origin(), Batch(messages_of(next(numbers), next(numbers)))))),
        guarded(lambda: void(read_all(world))),
        guarded(lambda: void(read_all(world))),
    ]
    merged = 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while merged <= 4 and time.monotonic() < deadline and not errors:
        merged += compact(world.engine, world.archive, world.folder / "scratch", keep_retired=NOW, rest_seconds=0).packs_before
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert errors == []
    assert merged > 4
    assert read_all(world) > 60
    assert verify(world.engine, world.archive, full=True).problems == []


def void(_: object) -> None:
    return None


# backup and export


def test_backup_is_incremental_and_restores_to_the_same(world: World, new_world: Callable[..., World], tmp_path: Path) -> None:
    world.limit_bytes = 60_000
    fill(world)
    url = world.engine.url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql")
    first = backup(world.engine, world.archive, url, tmp_path / "backup")
    assert first.packs == first.copied > 1
    world.open().store_batch(world.origin(), Batch(messages_of(200, 201)))
    second = backup(world.engine, world.archive, url, tmp_path / "backup")
    assert second.copied <= 2 < second.packs
    expected = world.content()
    kept = Backup.open(tmp_path / "backup")
    restored = new_world(empty=True)
    restored.open()
    assert restore_packs(kept, restored.archive) == second.packs
    first_pack = next(restored.folder.iterdir())
    first_pack.unlink()
    assert restore_packs(kept, restored.archive) == second.packs  # goes on where it was interrupted
    assert first_pack.exists()
    check_empty(restored.engine)
    assert kept.reason_to_rebuild(restored.archive.keys) is None
    load_dump(
        kept.dump,
        restored.engine.url.render_as_string(hide_password=False).replace("postgresql+psycopg", "postgresql"),
        restored.archive.keys,
    )
    restored.engine.dispose()
    restored.open()
    assert restored.content() == expected
    assert read_all(restored) == len(expected["messages"])
    assert verify(restored.engine, restored.archive, full=True).problems == []
    assert not any(b"k" * 32 in path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file())


def test_export_gives_the_original_bytes_and_a_manifest(world: World, tmp_path: Path) -> None:
    fill(world)
    done = export(world.engine, world.archive, tmp_path / "all.zip", "zip")
    assert done.messages == world.value("SELECT count(*) FROM messages")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        lines = [orjson.loads(line) for line in archive.read("manifest.jsonl").splitlines()]
        assert len(lines) == done.messages
        for line in lines:
            assert hashlib.sha256(archive.read(line["file"])).hexdigest() == line["sha256"]
    part = export(world.engine, world.archive, tmp_path / "bob.zip", "zip", SECOND)
    assert part.messages == 3
    assert b"".join(raw_message(world.engine, world.archive, id_of(1))) == messages_of(1)[0].data
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_an_mbox_export_can_be_undone(world: World, tmp_path: Path) -> None:
    tricky = b"Subject: x\n\nFrom the start\n>From here\n>>From there\nno newline"
    world.open().store_batch(world.origin(), Batch((RawMessage("1", tricky),)))
    export(world.engine, world.archive, tmp_path / "all.mbox", "mbox")
    text_ = (tmp_path / "all.mbox").read_bytes()
    assert text_.startswith(b"From MAILER-DAEMON ")
    assert b"\n>From the start\n>>From here\n>>>From there\nno newline\n\n" in text_
    assert (tmp_path / "all.mbox.manifest.jsonl").exists()


def test_damage_in_one_message_does_not_stop_the_export(world: World, tmp_path: Path) -> None:
    fill(world)
    (path,) = world.folder.iterdir()
    spot = world.rows("SELECT position FROM objects WHERE kind = 'message' ORDER BY position OFFSET 3 LIMIT 1")[0].position
    data = bytearray(path.read_bytes())
    data[spot + 90] ^= 1
    path.write_bytes(data)
    done = export(world.engine, world.archive, tmp_path / "all.zip", "zip")
    assert len(done.failed) == 1
    assert "damage in pack" in done.failed[0]["error"]
    assert done.messages == world.value("SELECT count(*) FROM messages") - 1


def test_extracted_text_is_kept_once_and_survives_a_rebuild(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    first = store_texts(world.engine, world.archive, ["text of a page", "another", "text of a page"])
    assert store_texts(world.engine, world.archive, ["text of a page"]) == first[:1] == first[2:]
    assert read_text(world.archive, first[0]) == "text of a page"
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert read_text(rebuilt.archive, first[1]) == "another"


def test_compaction_ends_where_there_is_no_room_and_changes_nothing(world: World) -> None:
    """The new packs are written beside the old ones, which stay for a day."""
    fill(world)
    before, asked = world.content(), []

    def refuse(more_bytes: int) -> None:
        asked.append(more_bytes)
        raise NoRoom("the disk is nearly full", 1)

    with pytest.raises(NoRoom):
        compact(world.engine, world.archive, world.folder / "scratch", everything=True, rest_seconds=0, check_room=refuse)
    assert asked[0] > 0
    assert world.content() == before
    assert read_all(world) == len(before["messages"])
