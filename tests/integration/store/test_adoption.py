"""A database that is behind its packs takes in what it does not know, and only that."""

import hashlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from archiver.errors import DataFolderError
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.adopt import Unknown, adopt, find_unknown
from archiver.maintenance.recovery.catch_up import catch_up
from archiver.maintenance.recovery.found_mail import FOUND_MAILBOX
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import save_config
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.store.content import MemoryContent
from archiver.store.encoder import Record
from archiver.store.frames import FrameKind
from archiver.store.journal import Stamp
from archiver.sync.ingest.archive_state import last_stamp
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.integration.store.filled import fill, id_of, messages_of, read_all
from tests.support.failing_commit import failing_commit
from tests.support.store_world import mail

NOW = timedelta(0)


def store_and_abort(world: World, batch: Batch) -> None:
    """The bytes are on disk, the transaction is rolled back."""
    ingest = world.open()
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), batch)
    world.archive.close()


def go_on(world: World) -> None:
    """What happens after the older state of the database was saved."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(80, 81, 85)))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(81, 82)))
    changes = (CopyChange(ChangeKind.MOVED, "k5", folder="New", new_provider_key="New5"), CopyChange(ChangeKind.GONE, "k80"))
    ingest.store_batch(world.origin(), Batch(changes=changes))
    delete_message(world.engine, world.archive, id_of(6), "later")
    delete_message(world.engine, world.archive, id_of(82), "later, too")


@pytest.mark.parametrize("limit", [20_000, 256 << 20])
def test_a_database_that_was_rolled_back_is_as_it_was(world: World, new_world: Callable[..., World], limit: int) -> None:
    world.limit_bytes = limit
    fill(world)
    older = new_world(copy_of=world, folder=world.folder)
    go_on(world)
    expected = world.content()
    with world.engine.connect() as connection:
        newest = last_stamp(connection)
    world.close()
    older.open()
    unknown = find_unknown(older.engine, older.archive, rest_seconds=0)
    assert unknown.is_rolled_back
    assert unknown.frames > 10
    done = adopt(older.engine, older.archive, rest_seconds=0)
    assert (done.damage, done.lost_copies, done.conflicts, done.found, done.unconfirmed) == ([], 0, 0, 0, [])
    assert older.content() == expected
    assert read_all(older) == len(expected["messages"])
    assert verify(older.engine, older.archive, full=True).problems == []
    with older.engine.connect() as connection:
        assert last_stamp(connection) == Stamp(newest.generation + 1, newest.number)
    again = adopt(older.engine, older.archive, rest_seconds=0)
    assert again.is_empty
    assert find_unknown(older.engine, older.archive, rest_seconds=0) == Unknown()
    with older.engine.connect() as connection:
        assert last_stamp(connection).generation == newest.generation + 1
    assert older.open().store_batch(older.origin(), Batch(messages_of(6))).deleted_here == 1


def test_what_a_later_compaction_has_moved_is_found_again(world: World, new_world: Callable[..., World]) -> None:
    world.limit_bytes = 30_000
    fill(world)
    older = new_world(copy_of=world, folder=world.folder)
    go_on(world)
    scratch = world.folder.parent / "scratch"
    compact(world.engine, world.archive, scratch, keep_retired=NOW, rest_seconds=0)
    compact(world.engine, world.archive, scratch, keep_retired=NOW, rest_seconds=0)
    expected = world.content()
    world.close()
    older.open()
    assert verify(older.engine, older.archive).problems != []
    assert adopt(older.engine, older.archive, rest_seconds=0).damage == []
    assert older.content() == expected
    assert read_all(older) == len(expected["messages"])


def test_an_adoption_that_is_stopped_anywhere_has_changed_nothing(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    older = new_world(copy_of=world, folder=world.folder)
    go_on(world)
    expected = world.content()
    world.close()
    older.open()
    before = older.content()
    steps = [("messages", "INSERT"), ("objects", "INSERT"), ("message_copies", "UPDATE"), ("messages", "DELETE")]
    for table, event in [*steps, ("outbox", "INSERT"), ("packs", "INSERT"), ("archive_state", "UPDATE")]:
        older.refuse(table, event)
        with pytest.raises(DBAPIError, match="refused by the test"):
            adopt(older.engine, older.archive, rest_seconds=0)
        older.allow(table)
        assert older.content() == before
    adopt(older.engine, older.archive, rest_seconds=0)
    assert older.content() == expected


def test_a_batch_that_was_rolled_back_and_came_again_adds_nothing(world: World) -> None:
    batch = Batch(messages_of(1, 2, 5))
    store_and_abort(world, batch)
    ingest = world.open()
    ingest.store_batch(world.origin(), batch)
    ingest.store_batch(world.origin(), Batch(changes=(CopyChange(ChangeKind.MOVED, "k1", "Old", new_provider_key="Old1"),)))
    before = world.content()
    packs = list(world.archive.backend.packs())
    done = adopt(world.engine, world.archive, pack_ids=packs, rest_seconds=0)
    assert (done.messages, done.copies, done.conflicts, done.damage) == (0, 0, 0, [])
    assert world.content() == before


def test_a_pack_that_has_a_message_twice_is_taken_in(world: World, new_world: Callable[..., World]) -> None:
    world.open().store_batch(world.origin(), Batch(messages_of(3)))
    world.archive.close()
    older = new_world(copy_of=world, folder=world.folder)
    store_and_abort(world, Batch(messages_of(1, 5)))
    world.open().store_batch(world.origin(), Batch(messages_of(1, 5)))
    expected = world.content()
    world.close()
    older.open()
    assert adopt(older.engine, older.archive, rest_seconds=0).messages == 2
    assert older.content() == expected


def test_a_batch_that_was_rolled_back_and_passed_by_others_is_taken_in(world: World) -> None:
    """By those of the same writer: another one would begin a pack of its own."""
    ingest = world.open()
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), Batch(messages_of(1, 5)))
    ingest.store_batch(world.origin(), Batch(messages_of(2)))
    (pack_id,) = world.archive.backend.packs()
    assert adopt(world.engine, world.archive, rest_seconds=0).is_empty, "later batches have passed it"
    done = adopt(world.engine, world.archive, pack_ids=[pack_id], rest_seconds=0)
    assert (done.messages, done.copies, done.damage) == (2, 2, [])
    assert read_all(world) == 3
    assert adopt(world.engine, world.archive, pack_ids=[pack_id], rest_seconds=0).is_empty


def test_committed_bytes_keep_their_key(world: World, new_world: Callable[..., World]) -> None:
    store_and_abort(world, Batch((RawMessage("k", mail(1)), RawMessage("same", mail(3)))))
    world.open().store_batch(world.origin(), Batch((RawMessage("k", mail(2)), RawMessage("same", mail(3)))))
    committed = world.value("SELECT message_id FROM message_copies WHERE provider_key = 'k'")
    packs = list(world.archive.backend.packs())
    done = adopt(world.engine, world.archive, pack_ids=packs, rest_seconds=0)
    assert (done.messages, done.copies, done.conflicts) == (1, 1, 1)
    assert world.value("SELECT message_id FROM message_copies WHERE provider_key = 'k'") == committed
    assert read_all(world) == 3
    expected = world.content()
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    assert rebuild(rebuilt.engine, rebuilt.archive).conflicts == 1
    assert rebuilt.content()["copies"] == expected["copies"]


def test_what_was_deleted_is_not_taken_in_from_packs_that_are_unknown(world: World) -> None:
    """A compaction that was killed leaves a pack that nobody knows, with everything in it."""
    world.limit_bytes = 30_000
    fill(world)
    before = world.content()
    for name in ("packs", "objects"):
        world.rows(f"SELECT 1 FROM {name}")
    world.refuse("objects", "UPDATE")
    with pytest.raises(DBAPIError, match="refused by the test"):
        compact(world.engine, world.archive, world.folder.parent / "scratch", everything=True, rest_seconds=0)
    world.allow("objects")
    delete_mailbox_mail(world.engine, world.archive, SECOND, "left")
    before = world.content()
    unknown = find_unknown(world.engine, world.archive, rest_seconds=0)
    assert (len(unknown.packs), unknown.is_rolled_back) == (1, False)
    done = adopt(world.engine, world.archive, rest_seconds=0)
    assert (done.packs, done.messages, done.copies, done.found) == (1, 0, 0, 0)
    assert world.content() == before
    assert verify(world.engine, world.archive, full=True).problems == []


def test_a_message_that_nothing_tells_of_is_kept(world: World) -> None:
    fill(world)
    lonely = mail(500)
    world.archive.append([Record(FrameKind.MESSAGE, hashlib.sha256(lonely).digest(), MemoryContent(lonely))])
    done = adopt(world.engine, world.archive, rest_seconds=0)
    assert (done.found, done.messages) == (1, 1)
    assert world.value("SELECT count(*) FROM message_copies WHERE mailbox_id = :m", m=FOUND_MAILBOX) == 1
    assert world.value("SELECT address FROM mailboxes WHERE id = :m", m=FOUND_MAILBOX) == "found in the store"
    read_all(world)
    delete_mailbox_mail(world.engine, world.archive, FOUND_MAILBOX, "not wanted")
    packs = list(world.archive.backend.packs())
    assert adopt(world.engine, world.archive, pack_ids=packs, rest_seconds=0).found == 0


def test_a_pack_that_somebody_writes_to_is_left_for_the_next_time(world: World, new_world: Callable[..., World]) -> None:
    fill(world)
    older = new_world(copy_of=world, folder=world.folder)
    go_on(world)
    older.open()
    done = adopt(older.engine, older.archive, rest_seconds=0)  # the writer of `world` is open
    assert (done.is_empty, done.in_use) == (True, 1)
    world.archive.close()
    assert adopt(older.engine, older.archive, rest_seconds=600).in_use == 1
    assert not adopt(older.engine, older.archive, rest_seconds=0).is_empty


def test_deletions_of_an_older_version_are_learned_from_the_packs(world: World) -> None:
    fill(world)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE message_copies SET deleted_sha256 = NULL"))
        connection.execute(text("UPDATE archive_state SET knows_deletions = false"))
    adopt(world.engine, world.archive, rest_seconds=0)
    assert world.value("SELECT count(*) FROM message_copies WHERE deleted_at IS NOT NULL AND deleted_sha256 IS NULL") == 0
    moved = RawMessage("moved", messages_of(4)[0].data)
    assert world.open().store_batch(world.origin(), Batch((moved,))).deleted_here == 1


def test_packs_of_another_archive_are_refused(world: World, new_world: Callable[..., World]) -> None:
    other = new_world()
    for one in (world, other):
        fill(one)
        save_config(one.engine, one.archive)
    with other.engine.begin() as connection:
        connection.execute(text("UPDATE archive_state SET archive_id = gen_random_uuid()"))
    before = other.content()
    other.archive.close()
    mixed = World(other.engine, world.folder)
    world.archive.close()
    mixed.open()
    save_foreign(world)
    with pytest.raises(DataFolderError, match=r"belongs to archive .* the database to archive .* Nothing was changed"):
        catch_up(mixed.engine, mixed.archive, lambda sentence: None)
    with pytest.raises(DataFolderError, match="belongs to archive"):
        compact(mixed.engine, mixed.archive, mixed.folder / "scratch", rest_seconds=0)
    assert other.content() == before
    mixed.archive.close()


def save_foreign(world: World) -> None:
    """One more pack, whose snapshot is not the first thing in it."""
    world.open().store_batch(world.origin(), Batch(messages_of(900)))
    save_config(world.engine, world.archive)
    world.archive.close()


def test_a_rebuilt_database_is_of_the_archive_that_its_packs_are_of(world: World, new_world: Callable[..., World]) -> None:
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE archive_state SET archive_id = gen_random_uuid()"))
    fill(world)
    save_config(world.engine, world.archive)
    world.archive.close()
    ways: list[Callable[[World], object]] = [
        lambda one: rebuild(one.engine, one.archive),
        lambda one: adopt(one.engine, one.archive, rest_seconds=0),
    ]
    for take_in in ways:
        rebuilt = new_world(empty=True, folder=world.folder)
        rebuilt.open()
        take_in(rebuilt)
        same = "SELECT archive_id FROM archive_state"
        assert rebuilt.value(same) == world.value(same)
        rebuilt.open().store_batch(rebuilt.origin(), Batch(messages_of(901)))
        assert catch_up(rebuilt.engine, rebuilt.archive, lambda sentence: None).is_empty
        rebuilt.archive.close()
