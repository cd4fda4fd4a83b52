"""Texts that Postgres cannot store, and jobs that cannot be settled: they harm nobody but themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import Engine, text

from archiver.errors import NotReady
from archiver.queue.completion import wait_for_job
from archiver.queue.jobs import ContinuousSync, JobEnvelope, Ping, QueueName, ReconcileIndex
from archiver.queue.queues import FailedJob, JobQueues
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync import ledger, outbox, sessions
from archiver.sync.failures import settle_failed
from archiver.sync.ledger import LedgerListing
from archiver.sync.relay import Relay
from archiver.sync.sessions import ListedMailbox
from tests.integration.sync.test_sessions import add_source, announced, begin, publish, rows
from tests.support.waiting import DEADLINE_SECONDS
from workers.runtime import WorkerProcess

NASTY = "a\0b\ud800c"
NICE = "a\ufffdb\ufffdc"


def test_a_parameter_is_cleaned_on_its_way(engine: Engine) -> None:
    ((one, many),) = rows(engine, "SELECT CAST(:one AS text), CAST(:many AS text[])", one=NASTY, many=[NASTY, "fine"])
    assert (one, many) == (NICE, [NICE, "fine"])


def test_a_job_may_fail_with_any_reason_and_any_data(engine: Engine) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        row_id = outbox.announce(connection, ContinuousSync(source_id), source_id=source_id)
    data = {**JobEnvelope.of(ContinuousSync(source_id), str(row_id)).encode(), NASTY: NASTY}
    with engine.begin() as connection:
        settle_failed(connection, FailedJob(QueueName.INGESTION, str(row_id), "continuous-sync", data, NASTY, 5))
    ((reason, payload),) = rows(engine, "SELECT reason, payload FROM dead_letters")
    assert reason == NICE
    assert payload[NICE] == NICE


def test_a_mailbox_may_have_any_name_and_fail_with_any_reason(engine: Engine) -> None:
    source_id = add_source(engine)
    with engine.begin() as connection:
        session = sessions.claim(connection, source_id, is_initial_import=False)
        assert sessions.publish(connection, session, [ListedMailbox(f"{NASTY}@example.org", NASTY, NASTY)], None) == 1
    ((row_id, job),) = announced(engine)
    held = begin(engine, row_id, job)
    assert held is not None
    with engine.begin() as connection:
        assert sessions.end_mailbox(connection, held, source_id, error=NASTY)
    assert rows(engine, "SELECT address, display_name FROM mailboxes") == [(f"{NICE}@example.org", NICE)]
    assert rows(engine, "SELECT error_message FROM sync_session_mailboxes") == [(NICE,)]


def test_a_folder_may_have_any_name(engine: Engine) -> None:
    publish(engine, add_source(engine), 1)
    ((mailbox_id,),) = rows(engine, "SELECT id FROM mailboxes")
    with engine.begin() as connection:
        ledger.record_listings(connection, mailbox_id, [LedgerListing(NASTY, ["1", "2"])])
        ledger.record_skipped(connection, mailbox_id, [("1", NASTY, NASTY)])
        assert ledger.gap(connection, mailbox_id) == ["2"]
    assert rows(engine, "SELECT DISTINCT folder FROM unaccounted_keys") == [(NICE,)]


def _fails(job: Ping, *_: Any) -> None:
    raise RuntimeError(f"{job.token} failed \0 {job.token}")


async def _give_up(url: str, names: list[str]) -> None:
    """Jobs that a worker has tried, and BullMQ given up."""
    process = WorkerProcess(queue=QueueName.INGESTION, redis_url=url, concurrency=1, processors={"ping": _fails})
    running = asyncio.create_task(process.run())
    try:
        async with JobQueues(url) as queues:
            for name in names:
                await queues.add(QueueName.INGESTION, Ping(name), name)
            for name in names:
                with pytest.raises(NotReady):
                    await wait_for_job(url, QueueName.INGESTION, name, DEADLINE_SECONDS)
    finally:
        running.cancel()
        await asyncio.wait([running])


def test_one_job_that_cannot_be_settled_keeps_the_relay_from_no_other(engine: Engine, valkey: EmbeddedValkey) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
                "CREATE TRIGGER refuse BEFORE INSERT ON dead_letters FOR EACH ROW WHEN (NEW.job_id = 'job-1')"
                " EXECUTE FUNCTION refuse()"
            )
        )
        lost = outbox.announce(connection, ReconcileIndex())
        connection.execute(text("UPDATE outbox SET sent_at = now() - interval '1 hour'"))
    url = valkey.url()
    asyncio.run(_give_up(url, ["job-0", "job-1", "job-2"]))

    async def care() -> list[str]:
        async with JobQueues(url) as queues:
            await Relay(engine, "", url, 1, 10, 2)._maintain_once(queues)
            return [failed.id for failed in await queues.failed(QueueName.INGESTION)]

    assert asyncio.run(care()) == ["job-1"]
    assert [row.job_id for row in rows(engine, "SELECT job_id FROM dead_letters ORDER BY job_id")] == ["job-0", "job-2"]
    assert rows(engine, "SELECT id FROM outbox WHERE sent_at IS NULL") == [(lost,)], "what Redis lost is sent again"


def test_a_text_is_still_taken_for_whatever_it_is_compared_with(engine: Engine) -> None:
    source_id = add_source(engine)
    for statement in ("id = :given", "id = ANY(ARRAY[:given]::uuid[])", "CAST(id AS text) = :given"):
        assert rows(engine, f"SELECT name FROM ingestion_sources WHERE {statement}", given=str(source_id)) == [("s",)]
    assert rows(engine, "SELECT 1 WHERE now() > :at AND '{\"a\": 1}'::jsonb = :json", at="2020-01-01", json='{"a": 1}') == [
        (1,)
    ]
