"""Jobs and documents that failed are retried by themselves, at growing intervals."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.db.ids import uuid7
from archiver.db.sql import rows as json_rows
from archiver.db.sql import run
from archiver.indexing import statements
from archiver.queue.jobs import InitialImport, Job, JobEnvelope, QueueName, ReindexJob
from archiver.queue.queues import FailedJob
from archiver.sources import retries
from archiver.sync import outbox
from archiver.sync.failures import settle_failed


def rows(engine: Engine, statement: str, **values: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(statement), values))


def act(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def fail(engine: Engine, job: Job, job_id: UUID | str, queue: QueueName = QueueName.INDEXING) -> None:
    with engine.begin() as connection:
        settle_failed(
            connection, FailedJob(queue, str(job_id), job.name, JobEnvelope.of(job, str(job_id)).encode(), "broke", 5)
        )


def announce(engine: Engine, job: Job) -> UUID:
    with engine.begin() as connection:
        return outbox.announce(connection, job)


def retry(engine: Engine) -> retries.RetriedWork:
    with engine.begin() as connection:
        return retries.retry_due(connection)


def next_minutes(engine: Engine) -> float | None:
    ((minutes,),) = rows(engine, "SELECT extract(epoch FROM next_try_at - last_failed_at)::float8 / 60 FROM dead_letters")
    return None if minutes is None else float(minutes)


def pass_time(engine: Engine, minutes: float) -> None:
    shift = f"interval '{minutes} minutes'"
    act(
        engine,
        f"""UPDATE dead_letters SET created_at = created_at - {shift}, last_failed_at = last_failed_at - {shift},
        next_try_at = next_try_at - {shift}""",
    )


def test_a_job_is_retried_with_growing_pauses_until_it_succeeds(engine: Engine) -> None:
    fail(engine, ReindexJob(), announce(engine, ReindexJob()))
    assert rows(engine, "SELECT 1 FROM outbox") == []
    pauses = []
    for _ in range(9):
        minutes = next_minutes(engine)
        assert minutes is not None
        pauses.append(minutes)
        assert retry(engine).jobs == 0, "not before its time"
        pass_time(engine, minutes + 0.01)
        assert retry(engine).jobs == 1
        assert retry(engine).jobs == 0, "it is announced once"
        ((job_id,),) = rows(engine, "SELECT id FROM outbox")
        fail(engine, ReindexJob(), job_id)
    assert pauses[0] == 10
    assert all(later >= 1.9 * earlier or later == 1440 for earlier, later in pairwise(pauses[1:])), pauses
    assert max(pauses) <= 1440
    pass_time(engine, 1440)
    retry(engine)
    ((attempts,),) = rows(engine, "SELECT attempts FROM dead_letters")
    assert attempts == 50
    act(engine, "DELETE FROM outbox")  # as its effect does
    retry(engine)
    assert rows(engine, "SELECT 1 FROM dead_letters") == []


@pytest.mark.parametrize(
    ("job", "job_id"), [(InitialImport(uuid7(), str(uuid7())), uuid7()), (ReindexJob(), "repeat:reindex:1700000000000")]
)
def test_imports_and_scheduled_jobs_are_not_retried(engine: Engine, job: Job, job_id: UUID | str) -> None:
    if isinstance(job_id, UUID):
        with engine.begin() as connection:
            outbox.announce(connection, job, row_id=job_id)
    fail(engine, job, job_id)
    assert next_minutes(engine) is None
    pass_time(engine, 1e5)
    assert retry(engine).jobs == 0


def test_discarded_ones_and_those_of_another_release_stay(engine: Engine) -> None:
    fail(engine, ReindexJob(), announce(engine, ReindexJob()))
    pass_time(engine, 60)
    act(engine, "UPDATE dead_letters SET discarded_at = now()")
    assert retry(engine).jobs == 0
    act(engine, "UPDATE dead_letters SET discarded_at = NULL, job = 'of-another-release'")
    assert retry(engine).jobs == 0
    assert next_minutes(engine) is None


def _add_document(engine: Engine, attempts: int = 1) -> UUID:
    message_id = uuid7()
    act(
        engine,
        "INSERT INTO messages (id, sha256, canonical_sha256, size_bytes, sort_at, date_origin) VALUES"
        " (:id, :hash, :hash, 1, now(), 'received')",
        id=message_id,
        hash=message_id.bytes * 2,
    )
    for _ in range(attempts):
        with engine.begin() as connection:
            letter = json_rows([{"i": uuid7(), "m": message_id, "r": "the reader died"}])
            run(connection, statements.ADD_DEAD_LETTERS, rows=letter, parser=statements.PARSER_MARK)
    return message_id


def test_documents_are_retried_with_growing_pauses(engine: Engine) -> None:
    message_id = _add_document(engine)
    version = rows(engine, "SELECT index_version FROM messages")[0][0]
    assert retry(engine).documents == 0
    pass_time(engine, 10)
    assert retry(engine).documents == 1
    assert retry(engine).documents == 0, "its next attempt is later, whatever becomes of this one"
    assert rows(engine, "SELECT index_version FROM messages") == [(version + 1,)]
    assert rows(engine, "SELECT job FROM outbox") == [("index-email-batch",)]
    act(engine, "DELETE FROM outbox")
    with engine.begin() as connection:
        run(connection, statements.DROP_DEAD_LETTERS, ids=[message_id])
    pass_time(engine, 1e5)
    assert retry(engine).documents == 0


def test_after_an_update_of_the_parser_documents_are_retried_at_once_and_once(engine: Engine) -> None:
    _add_document(engine)
    _add_document(engine)
    act(engine, """UPDATE dead_letters SET payload = '{"parser": "0.0"}'""")
    assert retry(engine).documents == 2
    assert retry(engine).documents == 0
