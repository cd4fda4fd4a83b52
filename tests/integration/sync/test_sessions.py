"""Sessions in a real Postgres: claimed once, counted once, fenced, finished once, and found when they die."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from archiver.db.states import RunOutcome
from archiver.db.tables import uuid7
from archiver.queue.jobs import ContinuousSync, JobEnvelope, ProcessMailbox, QueueName
from archiver.queue.queues import FailedJob
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sync import cycle, outbox, scheduler, sessions
from archiver.sync.failures import settle_failed
from archiver.sync.sessions import ListedMailbox, Slice, SyncSession
from tests.support.waiting import DEADLINE_SECONDS, eventually


def add_source(engine: Engine, name: str = "s", **columns: object) -> UUID:
    source_id = uuid7()
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:id, 'fake', :name, 'syncing')"),
            {"id": source_id, "name": name},
        )
        for column, value in columns.items():
            connection.execute(
                text(f"UPDATE ingestion_sources SET {column} = :v WHERE id = :id"), {"v": value, "id": source_id}
            )
    return source_id


def publish(engine: Engine, source_id: UUID, mailboxes: int) -> SyncSession:
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        listed = [ListedMailbox(f"user{number}@example.org", None, None) for number in range(mailboxes)]
        assert sessions.publish(connection, session, listed, None) == mailboxes
    return session


def rows(engine: Engine, statement: str, **values: object) -> list:  # type: ignore[type-arg]
    with engine.connect() as connection:
        return list(connection.execute(text(statement), values))


def announced(engine: Engine) -> list[tuple[UUID, ProcessMailbox]]:
    found = rows(engine, "SELECT id, payload FROM outbox WHERE job = 'process-mailbox' ORDER BY id")
    return [(row.id, ProcessMailbox.from_data(row.payload["data"])) for row in found]


def begin(engine: Engine, row_id: UUID, job: ProcessMailbox) -> Slice | None:
    with engine.begin() as connection:
        return sessions.begin_slice(connection, job.session_id, job.mailbox_id, row_id)


def test_of_many_claims_at_once_there_is_one_session(engine: Engine) -> None:
    source_id = add_source(engine)
    barrier = threading.Barrier(8)

    def claim(_: int) -> UUID:
        with engine.begin() as connection:
            barrier.wait()
            return sessions.claim(connection, source_id, is_initial_import=False).id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(claim, range(8)))) == 1
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(
            text("INSERT INTO sync_sessions (id, ingestion_source_id) VALUES (:id, :source)"),
            {"id": uuid7(), "source": source_id},
        )


def test_the_same_mailbox_in_other_letters_is_one(engine: Engine) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        listed = [ListedMailbox(address, None, None) for address in ("A@x.org", "a@X.org", "b@x.org")]
        assert sessions.publish(connection, session, listed, None) == 2
        assert sessions.publish(connection, session, listed, None) == 0, "a retry changes nothing"
    assert len(rows(engine, "SELECT * FROM outbox")) == 2


def test_no_mailboxes_means_an_immediate_finish(engine: Engine) -> None:
    session = publish(engine, add_source(engine), 0)
    ((row_id,),) = rows(engine, "SELECT id FROM outbox WHERE job = 'sync-cycle-finished'")
    assert row_id == session.id


def test_thousands_of_mailboxes_are_counted_exactly_by_many_at_once(engine: Engine) -> None:
    source_id = add_source(engine)
    session = publish(engine, source_id, 2000)
    jobs = announced(engine)

    def work(item: tuple[UUID, ProcessMailbox]) -> None:
        row_id, job = item
        held = begin(engine, row_id, job)
        assert held is not None
        with engine.begin() as connection:
            failed = job.mailbox_id.int % 10 == 0
            assert sessions.end_mailbox(connection, held, source_id, error="no" if failed else None)
        with engine.begin() as connection:
            assert not sessions.end_mailbox(connection, held, source_id), "the second time changes nothing"

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(work, jobs))
    failed = sum(job.mailbox_id.int % 10 == 0 for _, job in jobs)
    ((done, bad, total),) = rows(engine, "SELECT completed_mailboxes, failed_mailboxes, total_mailboxes FROM sync_sessions")
    assert (done, bad, total) == (2000 - failed, failed, 2000)
    assert [row.id for row in rows(engine, "SELECT id FROM outbox")] == [session.id], "one finish, and nothing else"
    with engine.begin() as connection:
        ended = cycle.finish(connection, session.id)
        assert ended is not None
        assert ended.outcome is RunOutcome.INCOMPLETE
        assert cycle.finish(connection, session.id) is None
    ((errors,),) = rows(engine, "SELECT error_messages FROM sync_runs")
    assert len(errors) == 20, "the first twenty stand for all"


def test_whoever_begins_the_next_slice_fences_the_last_one_out(engine: Engine) -> None:
    source_id = add_source(engine)
    publish(engine, source_id, 1)
    ((row_id, job),) = announced(engine)
    first, second = begin(engine, row_id, job), begin(engine, row_id, job)
    assert first is not None
    assert second is not None
    assert second.number == first.number + 1
    with engine.begin() as connection:
        assert not sessions.requeue(connection, first, source_id)
        assert not sessions.end_mailbox(connection, first, source_id)
        assert sessions.requeue(connection, second, source_id)
    ((new_row, _),) = announced(engine)
    assert new_row != row_id
    assert begin(engine, row_id, job) is None, "the old announcement is settled"


def test_a_cancelled_mailbox_can_be_neither_begun_nor_ended(engine: Engine) -> None:
    source_id = add_source(engine)
    session = publish(engine, source_id, 1)
    ((row_id, job),) = announced(engine)
    held = begin(engine, row_id, job)
    assert held is not None
    with engine.begin() as connection:
        sessions.cancel(connection, session.id)
        assert not sessions.end_mailbox(connection, held, source_id)
        assert not sessions.requeue(connection, held, source_id)
    assert begin(engine, row_id, job) is None


def age(engine: Engine, minutes: int) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE sync_sessions SET last_activity_at = now() - :m * interval '1 minute'"), {"m": minutes})


def test_only_a_session_without_any_announced_job_is_stale(engine: Engine) -> None:
    source_id = add_source(engine)
    session = publish(engine, source_id, 2)
    age(engine, 31)
    with engine.begin() as connection:
        (idle,) = scheduler.idle_sessions(connection, 30)
    assert (idle.id, idle.complete, idle.has_jobs) == (session.id, False, True), "it waits in the queue: healthy"
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox"))
        (idle,) = scheduler.idle_sessions(connection, 30)
        assert not idle.has_jobs
        assert scheduler.end_stale(connection, [idle.id], 30) == [session.id]
    ((outcome,),) = rows(engine, "SELECT outcome FROM sync_runs")
    ((status, message),) = rows(engine, "SELECT status, status_message FROM ingestion_sources")
    assert (outcome, status) == ("stale", "error")
    assert "30 minutes without progress" in message


def test_an_active_session_is_not_looked_at(engine: Engine) -> None:
    publish(engine, add_source(engine), 1)
    age(engine, 29)
    with engine.begin() as connection:
        assert scheduler.idle_sessions(connection, 30) == []


def test_two_ticks_at_the_same_second(engine: Engine) -> None:
    add_source(engine, status="active")
    with scheduler.advisory_lock(engine, "tick") as first, scheduler.advisory_lock(engine, "tick") as second:
        assert (first, second) == (True, False)
    with scheduler.advisory_lock(engine, "tick") as again:
        assert again
    for expected in (1, 0):  # what is announced is not announced again
        with engine.begin() as connection:
            assert len(scheduler.start_due(connection, 10)) == expected


def add_owners(engine: Engine, count: int) -> list[UUID]:
    owners = [uuid7() for _ in range(count)]
    with engine.begin() as connection:
        for number, owner in enumerate(owners):
            connection.execute(
                text("INSERT INTO users (id, email) VALUES (:id, :email)"), {"id": owner, "email": f"{number}@x.org"}
            )
    return owners


def started_by_owner(engine: Engine, limit: int, per_owner: int = 0) -> list[int]:
    with engine.begin() as connection:
        started = scheduler.start_due(connection, limit, per_owner)
    counted = rows(engine, "SELECT count(*) FROM ingestion_sources WHERE id = ANY(:ids) GROUP BY owner_id", ids=started)
    return sorted(count for (count,) in counted)


def test_owners_take_turns_and_use_what_the_others_leave(engine: Engine) -> None:
    many, few, _ = add_owners(engine, 3)
    for number in range(40):
        add_source(engine, f"s{number}", status="active", owner_id=many)
    for number in range(2):
        add_source(engine, f"few{number}", status="active", owner_id=few)
    assert started_by_owner(engine, 6) == [2, 4], "both take turns"
    assert started_by_owner(engine, 6) == [], "those that are not sent yet use up the starts"
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox SET sent_at = now()"))
    assert started_by_owner(engine, 50, per_owner=5) == [5]
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox SET sent_at = now()"))
    assert started_by_owner(engine, 50) == [31], "alone, an owner gets every start"


def test_sources_that_are_being_listed_use_up_starts(engine: Engine) -> None:
    for number in range(3):
        source_id = add_source(engine, f"s{number}", status="active")
        if number < 2:
            with engine.begin() as connection:
                connection.execute(
                    text("INSERT INTO sync_sessions (id, ingestion_source_id, state) VALUES (:id, :source, 'listing')"),
                    {"id": uuid7(), "source": source_id},
                )
    assert started_by_owner(engine, 2) == []
    assert started_by_owner(engine, 3) == [1]


@pytest.mark.parametrize(("status", "due", "starts"), [
    ("pending", None, True), ("active", None, True), ("active", "now() - interval '1 minute'", True),
    ("active", "now() + interval '1 minute'", False), ("paused", None, False), ("imported", None, False),
    ("error", None, False), ("error", "now() - interval '1 minute'", True),
])  # fmt: skip
def test_which_sources_are_due(engine: Engine, status: str, due: str | None, starts: bool) -> None:
    source_id = add_source(engine, status=status)
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE ingestion_sources SET next_due_at = {due or 'NULL'} WHERE id = :id"), {"id": source_id}
        )
        assert bool(scheduler.start_due(connection, 10)) is starts


def test_a_job_that_was_given_up_ends_in_postgres_once(engine: Engine) -> None:
    source_id = add_source(engine)
    session = publish(engine, source_id, 2)
    ((row_id, job), _) = announced(engine)
    data = JobEnvelope.of(job, str(row_id)).encode()
    failed = FailedJob(QueueName.INGESTION, str(row_id), "process-mailbox", data, "it broke", 5)
    for _ in range(2):
        with engine.begin() as connection:
            settle_failed(connection, failed)
    ((bad,),) = rows(engine, "SELECT failed_mailboxes FROM sync_sessions")
    assert bad == 1
    assert len(announced(engine)) == 1

    listing = ContinuousSync(source_id)
    with engine.begin() as connection:
        connection.execute(text("UPDATE sync_sessions SET state = 'listing' WHERE id = :id"), {"id": session.id})
        row = outbox.announce(connection, listing, source_id=source_id)
        encoded = JobEnvelope.of(listing, str(row)).encode()
        settle_failed(connection, FailedJob(QueueName.INGESTION, str(row), "continuous-sync", encoded, "it broke", 5))
    ((reason, kind),) = rows(engine, "SELECT reason, kind FROM dead_letters")
    assert (reason, kind) == ("it broke", "job")
    assert rows(engine, "SELECT 1 FROM sync_sessions") == []
    ((status,),) = rows(engine, "SELECT status FROM ingestion_sources")
    assert status == "error"


def test_a_given_up_job_whose_row_is_settled_does_not_fail_its_successor(engine: Engine) -> None:
    source_id = add_source(engine)
    publish(engine, source_id, 1)
    ((row_id, job),) = announced(engine)
    held = begin(engine, row_id, job)
    assert held is not None
    with engine.begin() as connection:
        assert sessions.requeue(connection, held, source_id)
    data = JobEnvelope.of(job, str(row_id)).encode()
    with engine.begin() as connection:
        settle_failed(connection, FailedJob(QueueName.INGESTION, str(row_id), "process-mailbox", data, "stalled", 5))
    assert rows(engine, "SELECT state FROM sync_session_mailboxes") == [("queued",)]
    assert len(announced(engine)) == 1


def test_a_given_up_listing_whose_row_is_settled_does_not_end_its_successor(engine: Engine) -> None:
    source_id, old = add_source(engine), uuid7()
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        data = JobEnvelope.of(ContinuousSync(source_id), str(old)).encode()
        settle_failed(connection, FailedJob(QueueName.INGESTION, str(old), "continuous-sync", data, "stalled", 5))
    assert rows(engine, "SELECT id FROM sync_sessions") == [(session.id,)]
    assert rows(engine, "SELECT 1 FROM dead_letters") == []


def test_a_cycle_is_not_finished_before_its_mailboxes_have_ended(engine: Engine) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        listing = sessions.claim(connection, source_id, is_initial_import=False)
        assert cycle.finish(connection, listing.id) is None, "it has not been published"
    session = publish(engine, source_id, 1)
    with engine.begin() as connection:
        assert cycle.finish(connection, session.id) is None
    assert rows(engine, "SELECT id FROM sync_sessions") == [(session.id,)]
    assert rows(engine, "SELECT 1 FROM sync_runs") == []
    assert len(announced(engine)) == 1


@pytest.mark.parametrize(("outcome", "again"), [(RunOutcome.FAILED, 1), (RunOutcome.STALE, 1), (RunOutcome.CANCELLED, 0)])
def test_a_cycle_that_is_abandoned_is_followed_by_the_one_that_was_asked_for(
    engine: Engine, outcome: RunOutcome, again: int
) -> None:
    source_id = add_source(engine)
    session = publish(engine, source_id, 1)
    with engine.begin() as connection:
        assert sessions.request_rerun(connection, source_id)
        cycle.abandon(connection, session.id, outcome, "why")
    assert len(rows(engine, "SELECT 1 FROM outbox WHERE job = 'continuous-sync'")) == again


def test_a_source_is_paused_while_its_mailboxes_end(engine: Engine) -> None:
    """The two lock the same rows; neither may wait for the other in a circle."""
    source_id = add_source(engine)
    publish(engine, source_id, 1)
    ((row_id, job),) = announced(engine)
    held = begin(engine, row_id, job)
    assert held is not None
    with engine.connect() as ending, ThreadPoolExecutor(1) as pool:
        ending.execute(text("SELECT 1 FROM sync_session_mailboxes WHERE mailbox_id = :id FOR UPDATE"), {"id": job.mailbox_id})

        def pause() -> None:
            with engine.begin() as connection:
                source = source_rows.load(connection, source_id)
                assert source is not None
                sources.pause(connection, source)

        pausing = pool.submit(pause)
        _until_somebody_waits_for_a_lock(engine)
        assert sessions.end_mailbox(ending, held, source_id)
        ending.commit()
        pausing.result(timeout=DEADLINE_SECONDS)
    assert rows(engine, "SELECT status FROM ingestion_sources") == [("paused",)]
    assert rows(engine, "SELECT outcome, completed_mailboxes FROM sync_runs") == [("cancelled", 1)]


def _until_somebody_waits_for_a_lock(engine: Engine) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    eventually(lambda: rows(engine, waiting), what="somebody who waits for a lock", pause=0.01)
