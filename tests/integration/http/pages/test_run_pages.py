"""Runs on the page of their source."""

from __future__ import annotations

import pytest

from archiver.db.pause import WorkerPresence
from archiver.sync import cycle, sessions
from archiver.sync.sessions import ListedMailbox
from tests.integration.http.conftest import Company


@pytest.mark.parametrize(
    ("deleted", "expected"), [(1, "1 message excluded: deleted here"), (1200, "1,200 messages excluded: deleted here")]
)
def test_a_run_that_excluded_deleted_messages_is_shown(company: Company, deleted: int, expected: str) -> None:
    with company.engine.begin() as connection:
        session = sessions.claim(connection, company.source, is_initial_import=False)
        sessions.publish(connection, session, [ListedMailbox("alice@example.org", None, None)], None, is_whole=False)
        sessions.cancel(connection, session.id)
    company.act("UPDATE sync_sessions SET completed_mailboxes = total_mailboxes WHERE id = :id", id=session.id)
    with company.engine.begin() as connection:
        assert cycle.finish(connection, session.id)
    company.act("UPDATE sync_runs SET deleted_here = :n", n=deleted)
    with company.client("auditor", headers={"Accept-Language": "en"}) as client:
        page = client.get(f"{company.url}/sources/{company.source}")
    assert page.status_code == 200
    assert expected in page.text


def test_a_pause_of_the_workers_is_shown(company: Company) -> None:
    worker = WorkerPresence.join(company.engine, "indexing")
    with company.client("admin") as admin:
        assert "Workers are paused" not in admin.get(f"{company.url}/activity").text
        company.act("INSERT INTO worker_pause (reason, expires_at) VALUES ('step <0099>', now() + interval '1 minute')")
        page = admin.get(f"{company.url}/activity").text
        assert "Workers are paused: step &lt;0099&gt;. They resume automatically." in page
        assert "Still finishing their batches: indexing on " in page
        worker.beat(is_paused=True)
        assert "Still finishing" not in admin.get(f"{company.url}/activity").text
        company.act("UPDATE worker_pause SET expires_at = now()")
        assert "Workers are paused" not in admin.get(f"{company.url}/activity").text
    worker.leave()
