"""What is deleted is gone, stays gone, and takes nothing else along."""

import hashlib
import threading

import pytest
from sqlalchemy import text

from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.errors import UsageError
from archiver.maintenance.checks.verify import verify
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.store.errors import NotStored, StoreUnavailable
from archiver.sync.ingest.store_batch import Ingest
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.integration.store.filled import id_of, messages_of, read_all
from tests.support.waiting import DEADLINE_SECONDS, eventually


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
