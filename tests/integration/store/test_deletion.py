"""Deletions hold, whatever happens to the message at its source, to the clock, or to the transaction."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import DBAPIError

from archiver.db.engine import make_engine
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.adopt import adopt
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.recovery.replay import Replayed
from archiver.retention import tombstones
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.sync.ingest.store_batch import Ingest
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.integration.store.filled import id_of, messages_of, read_all
from tests.support.store_world import Failing, mail
from tests.support.waiting import DEADLINE_SECONDS, eventually

MakeWorld = Callable[..., World]


def rebuilt_from(world: World, new_world: MakeWorld) -> tuple[World, Replayed]:
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    return rebuilt, rebuild(rebuilt.engine, rebuilt.archive)


def again(key: str, number: int) -> Batch:
    """The same message, under the key that it has by now."""
    return Batch((replace(messages_of(number)[0], provider_key=key, folder=key.partition("\u241f")[0]),))


# by mailbox and SHA-256


@pytest.mark.parametrize("key", ["Moved\u241f1\u241f9", "Renamed\u241f1\u241f1", "INBOX\u241f2\u241f1"])
def test_deleted_mail_does_not_come_back_under_another_key(world: World, new_world: MakeWorld, key: str) -> None:
    """Moved, in a folder that was renamed, or after a new UIDVALIDITY."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(2)))
    delete_mailbox_mail(world.engine, world.archive, MAILBOX, "asked for")
    result = ingest.store_batch(world.origin(), again(key, 1))
    assert (result.archived, result.duplicates, result.deleted_here) == (0, 0, 1)
    assert ingest.known(MAILBOX, [key]) == {key}, "it is not fetched again"
    assert ingest.store_batch(world.origin(), again(key, 2)).deleted_here == 1, "also while another mailbox has it"
    assert ingest.store_batch(world.origin(SECOND), again(key, 1)).archived == 1, "another mailbox was not asked about"
    expected = world.content()
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert rebuilt.content() == expected
    assert done.lost_copies == 0
    assert rebuilt.open().store_batch(rebuilt.origin(), again("Third\u241f1\u241f1", 1)).deleted_here == 1


def test_deleted_mail_that_was_compacted_away_does_not_come_back(world: World, new_world: MakeWorld) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(*range(10))))
    change = CopyChange(ChangeKind.MOVED, "k1", folder="Old", flags=("\\Seen",), new_provider_key="Old1")
    ingest.store_batch(world.origin(), Batch(changes=(change,)))
    delete_message(world.engine, world.archive, id_of(1), "asked for")
    ingest.store_batch(world.origin(), again("Elsewhere", 1))
    for _ in range(2):
        compact(
            world.engine, world.archive, world.folder / "scratch", everything=True, keep_retired=timedelta(0), rest_seconds=0
        )
    expected = world.content()
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert (done.damage, done.lost_copies) == ([], 0)
    assert {**rebuilt.content(), "mailboxes": expected["mailboxes"]} == expected
    assert rebuilt.open().store_batch(rebuilt.origin(), again("Third", 1)).deleted_here == 1


def test_other_bytes_under_the_key_of_deleted_mail_are_archived(world: World, new_world: MakeWorld) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch((RawMessage("k", mail(1)),)))
    delete_mailbox_mail(world.engine, world.archive, MAILBOX, "asked for")
    result = ingest.store_batch(world.origin(), Batch((RawMessage("k", mail(2)),)))
    assert (result.archived, result.deleted_here) == (1, 0)
    assert ingest.store_batch(world.origin(), Batch((RawMessage("k", mail(2)),))).duplicates == 1
    expected = world.content()
    world.close()
    rebuilt, _ = rebuilt_from(world, new_world)
    assert rebuilt.content()["copies"] == expected["copies"]


# in two phases


def test_a_deletion_that_was_rolled_back_is_not_carried_out_by_a_rebuild(world: World, new_world: MakeWorld) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    before = world.content()
    world.refuse("audit_log")  # the last statement: the tombstone is on disk by then
    with pytest.raises(DBAPIError, match="refused by the test"):
        delete_message(world.engine, world.archive, id_of(1), "a mistake")
    assert world.content() == before
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert rebuilt.content()["copies"] == before["copies"]
    assert read_all(rebuilt) == 2
    (told,) = done.unconfirmed
    assert "a mistake" in told
    assert "1 copy" in told
    world.open()
    (pack_id,) = world.archive.backend.packs()
    assert adopt(world.engine, world.archive, pack_ids=[pack_id], rest_seconds=0).deleted_copies == 0
    assert world.content() == before


def test_a_deletion_that_could_not_be_confirmed_holds_and_is_confirmed_later(world: World, new_world: MakeWorld) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    world.archive.close()
    files = Failing()
    world.open(files)
    whole = files.count
    world.archive.close()
    for fail_at in range(whole, whole + 20):
        world.archive.close()
        world.open(Failing(fail_at))
        try:
            delete_message(world.engine, world.archive, id_of(1), "asked for")
            break
        except Exception:
            assert world.value("SELECT count(*) FROM message_copies WHERE deleted_at IS NOT NULL") == 0
    assert world.value("SELECT count(*) FROM message_copies WHERE deleted_at IS NOT NULL") == 1
    assert world.value("SELECT count(*) FROM tombstones WHERE confirmed_at IS NULL") == 1
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert (done.deleted_copies, len(done.unconfirmed)) == (0, 1)
    rebuilt.close()
    world.open()
    assert tombstones.confirm(world.engine, world.archive) == 1
    assert tombstones.confirm(world.engine, world.archive) == 0
    expected = world.content()
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert (done.deleted_copies, done.unconfirmed) == (1, [])
    assert rebuilt.content()["copies"] == expected["copies"]


_WAIT = """
    CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'archiver-slow' THEN
            PERFORM pg_advisory_xact_lock_shared(1);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER wait AFTER {event} ON message_copies FOR EACH STATEMENT EXECUTE FUNCTION wait_for_test()"""
_IS_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("event", ["INSERT", "UPDATE"])
@pytest.mark.parametrize("comes_again", [True, False])
def test_a_deletion_and_a_batch_about_the_same_message_wait_for_each_other_in_one_order(
    world: World, event: str, comes_again: bool
) -> None:
    """The batch stands between two of its statements while the deletion begins: after the messages were looked up and copies
    added, or after copies were changed and before their messages are."""
    ingest, errors = world.open(), []
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2)))
    url = world.engine.url.render_as_string(hide_password=False)
    slow, deleting = make_engine(url, "slow"), make_engine(url, "deleting")
    relabelled = (CopyChange(ChangeKind.RELABELLED, "k1", labels=("new",)),)
    batch = Batch(messages_of(1, 9) if comes_again else messages_of(9), changes=relabelled)

    def run(work: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    with world.engine.begin() as connection:
        connection.exec_driver_sql(_WAIT.format(event=event))
    with world.engine.connect() as gate:
        gate.exec_driver_sql("SELECT pg_advisory_lock(1)")
        storing = run(lambda: Ingest(slow, world.archive).store_batch(world.origin(), batch))
        until_waiting(world, "archiver-slow")
        removing = run(lambda: delete_message(deleting, world.archive, id_of(1), "asked for"))
        until_waiting(world, "archiver-deleting")
        gate.exec_driver_sql("SELECT pg_advisory_unlock(1)")
        storing.join(DEADLINE_SECONDS)
        removing.join(DEADLINE_SECONDS)
    assert errors == []
    assert world.value("SELECT count(*) FROM message_copies WHERE provider_key = 'k1' AND deleted_at IS NOT NULL") == 1
    assert read_all(world) == 2
    slow.dispose()
    deleting.dispose()


def until_waiting(world: World, name: str) -> None:
    eventually(lambda: world.value(_IS_WAITING, name=name), what=f"{name} waiting", pause=0.01)


# whatever the clock says


class Clock(datetime):
    """Set back by a day with each look at it."""

    looks = 0

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        cls.looks += 1
        return datetime(2026, 11, 17, tzinfo=UTC) - timedelta(days=cls.looks)


def test_a_clock_that_is_set_back_changes_no_order(world: World, new_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archiver.sync.ingest.store_batch.datetime", Clock)
    monkeypatch.setattr("archiver.retention.delete.datetime", Clock)
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(messages_of(1, 2, 3)))
    for folder in ("A", "B", "C"):
        ingest.store_batch(world.origin(), Batch(changes=(CopyChange(ChangeKind.MOVED, "k1", folder),)))
    ingest.store_batch(world.origin(), Batch(changes=(CopyChange(ChangeKind.GONE, "k3"),)))
    ingest.store_batch(world.origin(), Batch(changes=(CopyChange(ChangeKind.BACK, "k3"),)))
    delete_message(world.engine, world.archive, id_of(2), "asked for")
    ingest.store_batch(world.origin(), again("other", 2))
    expected = world.content()
    assert Clock.looks >= 8
    world.close()
    rebuilt, done = rebuilt_from(world, new_world)
    assert rebuilt.content()["copies"] == expected["copies"]
    assert done.deleted_copies == 2
