"""Compaction frees space, and loses nothing wherever it is stopped."""

import hashlib
import threading
import time
from collections.abc import Callable

import pytest

from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.retention.delete import delete_mailbox_mail
from archiver.secrets import Keyring
from archiver.store.capacity import NoRoom
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, World
from tests.integration.store.filled import NOW, fill, messages_of, read_all
from tests.support.store_world import Failing
from tests.support.waiting import DEADLINE_SECONDS


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
