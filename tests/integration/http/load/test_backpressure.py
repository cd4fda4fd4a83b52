"""Backpressure by what waits: bulk work of the heaviest owner is refused, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archiver.config import load_settings
from tests.integration.http.conftest import Client, Company, Served

MAIL = b"From: a@example.org\r\nSubject: one\r\n\r\nbody\r\n"
LIMITS = {"BACKPRESSURE_LAG_SECONDS": "60", "BACKPRESSURE_SPOOL_BYTES": "1000"}


@contextmanager
def served(company: Company, variables: dict[str, str], *names: str) -> Iterator[list[Client]]:
    with Served(load_settings({**variables, **LIMITS}, Path("none"))) as server:
        clients = []
        for name in names:
            client = company.client(name)
            client.base_url = server.url
            clients.append(client)
        yield clients
        for client in clients:
            client.close()


@pytest.fixture
def waiting(company: Company) -> Iterator[None]:
    """An hour ago, mail of a source of alice's arrived, and was not indexed yet."""
    company.act("UPDATE ingestion_sources SET owner_id = :owner", owner=company.people["alice"].id)
    company.act(
        "UPDATE messages SET index_version = indexed_version + 1, search_state = 'pending',"
        " archived_at = now() - interval '1 hour'"
    )
    yield
    company.act("UPDATE ingestion_sources SET owner_id = NULL")
    company.act("UPDATE messages SET index_version = indexed_version, search_state = 'full', archived_at = now()")


@pytest.mark.usefixtures("waiting")
def test_only_bulk_work_of_the_owner_of_the_backlog_is_refused(company: Company, variables: dict[str, str]) -> None:
    with served(company, variables, "alice", "bob") as (alice, bob):
        answer = alice.post("/uploads", json={"name": "x.mbox", "size_bytes": 10})
        assert (answer.status_code, answer.json()["code"]) == (429, "backlog")
        assert "waited 60 minutes" in answer.json()["detail"]
        assert 10 <= int(answer.headers["Retry-After"]) <= 3600
        begun = bob.post("/uploads", json={"name": "x.mbox", "size_bytes": 10})
        assert begun.status_code == 201, "bob's mail does not wait"
        assert bob.delete(f"/uploads/{begun.json()['id']}").status_code == 204
        one = alice.post("/messages", params={"mailbox": "alice@example.org"}, content=MAIL)
        assert one.status_code == 201, "one message is no bulk work"
        assert alice.get("/search", params={"q": "text"}).status_code == 200
    company.act("DELETE FROM message_copies WHERE folder = 'API'")


def test_uploads_that_wait_are_shared_fairly(company: Company, variables: dict[str, str]) -> None:
    with served(company, variables, "alice", "bob") as (alice, bob):
        first = alice.post("/uploads", json={"name": "x", "size_bytes": 900})
        assert first.status_code == 201
    with served(company, variables, "alice", "bob") as (alice, bob):  # (what was measured is remembered for two seconds)
        more = alice.post("/uploads", json={"name": "y", "size_bytes": 200})
        assert (more.status_code, more.json()["code"]) == (429, "backlog")
        small = bob.post("/uploads", json={"name": "z", "size_bytes": 200})
        assert small.status_code == 201, "within an equal part of the limit"
        bob.delete(f"/uploads/{small.json()['id']}")
        alice.delete(f"/uploads/{first.json()['id']}")


def test_a_large_tenant_in_the_outbox_refuses_nobody(company: Company) -> None:
    company.act(
        "INSERT INTO outbox (id, queue, job, payload, available_at)"
        " SELECT gen_random_uuid(), 'ingestion', 'process-mailbox', '{}', now() + interval '1 hour'"
        " FROM generate_series(1, 10001)"
    )
    try:
        with company.client("alice") as client:
            assert client.post("/messages", params={"mailbox": "alice@example.org"}, content=MAIL).status_code == 201
            begun = client.post("/uploads", json={"name": "x.mbox", "size_bytes": 10})
            assert begun.status_code == 201
            client.delete(f"/uploads/{begun.json()['id']}")
    finally:
        company.act("DELETE FROM outbox")
        company.act("DELETE FROM message_copies WHERE folder = 'API'")


@pytest.mark.usefixtures("waiting")
def test_the_page_shows_limits_and_administrators_see_owners(company: Company, variables: dict[str, str]) -> None:
    with served(company, variables, "admin", "auditor") as (admin, auditor):
        page = admin.get(f"{admin.base_url}/activity".replace("//activity", "/activity")).text
        assert "Oldest message that is not searchable yet" in page
        assert "refused for now" in page
        assert "alice@example.org" in page
        assert "refused for now" not in auditor.get(f"{auditor.base_url}/activity".replace("//activity", "/activity")).text
