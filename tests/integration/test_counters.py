"""Counters in Postgres: added up over processes, kept while the server is away, and there after Redis has lost everything."""

from __future__ import annotations

from sqlalchemy import Engine

from archiver.db.counters import Counters, read_counts
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.maintenance.figures import shared_figures


def test_counts_of_several_processes_add_up(engine: Engine) -> None:
    for number in (1, 2, 3):
        counters = Counters()
        counters.add("archiver_jobs", number, job="reindex", event="done")
        counters.observe("archiver_job_seconds", 0.2, job="reindex")
        counters.write(engine)
    with engine.connect() as connection:
        found = read_counts(connection)
    assert found["archiver_jobs", (("event", "done"), ("job", "reindex"))] == 6
    assert found["archiver_job_seconds_bucket", (("job", "reindex"), ("le", "0.5"))] == 3


def test_what_could_not_be_written_is_written_later(engine: Engine) -> None:
    counters = Counters()
    counters.add("archiver_jobs", job="x", event="done")
    gone = make_engine("postgresql://nobody@127.0.0.1:1/none", "test")
    counters.write(gone)
    gone.dispose()
    counters.write(engine)
    with engine.connect() as connection:
        assert read_counts(connection) == {("archiver_jobs", (("event", "done"), ("job", "x"))): 1.0}


def test_every_figure_can_be_read(engine: Engine) -> None:
    source = uuid7()
    with engine.begin() as connection:
        run = connection.exec_driver_sql
        run("INSERT INTO ingestion_sources (id, kind, name, status) VALUES (%s, 'imap', 'work', 'active')", (source,))
        run("INSERT INTO sync_runs (id, source_id, outcome, started_at) VALUES (%s, %s, 'success', now())", (uuid7(), source))
        run("INSERT INTO outbox (id, queue, job) VALUES (%s, 'indexing', 'reindex')", (uuid7(),))
        run("INSERT INTO worker_processes (id, queue, host, pid) VALUES (%s, 'indexing', 'h', 7)", (uuid7(),))
    found = shared_figures(engine)
    assert found is not None
    values = {(one.name, one.labels): one.value for one in found.figures}
    assert values["archiver_source_state", ("work", "active")] == 1
    assert values["archiver_outbox_rows", ("indexing", "pending")] == 1
    assert values["archiver_source_last_success_timestamp_seconds", ("work",)] > 1e9
    assert ("archiver_worker_resident_bytes", ("indexing", "h-7")) in values
