"""Fifty slow requests of one person, of each kind: everybody else is answered meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from sqlalchemy import text

from archiver.access.login import logins
from archiver.db.tables import message_uuid
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.integration.http.conftest import Company, Served, mail
from tests.support.search_at import SearchAt
from tests.support.waiting import DEADLINE_SECONDS

MANY = 50
SLOW = mail(9, "x@example.net", "alice@example.org", "slow", "parser: sleeps", b"%PDF-1.4 slow")


@pytest.fixture
def slow(company: Company, monkeypatch: pytest.MonkeyPatch) -> Iterator[Company]:
    """A second web process for the same company, whose readers never come to an end with one message of alice's."""
    archive = open_archive(company.settings, company.engine)
    with company.engine.connect() as connection:
        origin = load_origin(connection, company.mailboxes["alice"])
    Ingest(company.engine, archive).store_batch(origin, Batch(messages=(RawMessage("INBOX:slow", data=SLOW),)))
    archive.close()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "support" / "hostile_parser"))
    with Served(company.settings) as served:
        context = served.app.state.context
        yield Company(company.settings, company.engine, served.url, messages=company.messages, people=company.people)
        context.opener.close()  # those who still wait see their readers die


def slow_path(kind: str) -> str:
    message = message_uuid(hashlib.sha256(SLOW).digest())
    return {
        "message page": f"/messages/{message}",
        "message": f"/api/v1/messages/{message}",
        "body": f"/messages/{message}/body",
        "file": f"/messages/{message}/files/0",
        "drawing": f"/messages/{message}/files/0/pages/1",
        "file text": f"/messages/{message}/files/0/text",
        "attachment": f"/api/v1/messages/{message}/attachments/0",
    }[kind]


def cookies(company: Company, name: str) -> dict[str, str]:
    with company.engine.begin() as connection:
        return {"archiver": logins.start(connection, company.settings, company.people[name].id, None, "test").token}


async def others_are_answered(company: Company, path: str, sessions_of_one: int = 3) -> None:
    limits = httpx2.Limits(max_connections=200)
    shown = [cookies(company, "alice") for _ in range(sessions_of_one)]
    async with (
        httpx2.AsyncClient(base_url=company.url, timeout=DEADLINE_SECONDS, limits=limits, verify=False) as one,
        httpx2.AsyncClient(
            base_url=company.url, timeout=DEADLINE_SECONDS, cookies=cookies(company, "bob"), verify=False
        ) as other,
    ):
        for session in shown:  # so that all of them are known to be hers
            assert (await one.get("/api/v1/me", headers=_cookie(session))).status_code == 200
        tasks = [asyncio.create_task(one.get(path, headers=_cookie(shown[at % len(shown)]))) for at in range(MANY)]
        try:
            await _until_busy(tasks, one, shown[0])
            mine = f"/messages/{company.messages['bob']}"
            for wanted in ("/api/v1/me", f"/api/v1{mine}", mine, f"/api/v1{mine}/raw", "/healthz"):
                assert (await other.get(wanted)).status_code == 200, wanted
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _cookie(session: dict[str, str]) -> dict[str, str]:
    return {"Cookie": f"archiver={session['archiver']}"}


async def _until_busy(tasks: list[asyncio.Task[httpx2.Response]], one: httpx2.AsyncClient, session: dict[str, str]) -> None:
    """Until one more request of hers is not answered at once: all that she may have worked on is being worked on."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await asyncio.wait_for(one.get("/api/v1/me", headers=_cookie(session)), 1.0)
            except TimeoutError:
                return
            assert not all(task.done() for task in tasks), [task.result() for task in tasks]


@pytest.mark.parametrize("kind", ["message page", "message", "body", "file", "drawing", "file text", "attachment"])
def test_who_opens_slow_mail_holds_up_nobody_else(slow: Company, kind: str) -> None:
    asyncio.run(others_are_answered(slow, slow_path(kind)))


def test_who_searches_a_server_that_does_not_answer_holds_up_nobody_else(slow: Company, search_server: SearchAt) -> None:
    assert search_server.process is not None
    process = psutil.Process(search_server.process.pid)
    process.suspend()
    try:
        asyncio.run(others_are_answered(slow, "/api/v1/search?q=zebra"))
    finally:
        process.resume()


@contextmanager
def locked(company: Company, table: str) -> Iterator[None]:
    with company.engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        yield


@pytest.mark.parametrize(("table", "path"), [("exports", "/api/v1/exports"), ("uploads", "/api/v1/uploads")])
def test_who_waits_for_the_database_holds_up_nobody_else(slow: Company, table: str, path: str) -> None:
    with locked(slow, table):
        asyncio.run(others_are_answered(slow, path))


def test_who_does_not_sign_in_holds_up_nobody_who_has(slow: Company) -> None:
    """By address, until somebody is known."""

    async def run() -> None:
        async with httpx2.AsyncClient(
            base_url=slow.url, timeout=DEADLINE_SECONDS, cookies=cookies(slow, "bob"), verify=False
        ) as other:
            assert (await other.get("/api/v1/me")).status_code == 200
            with locked(slow, "sessions"):
                async with httpx2.AsyncClient(base_url=slow.url, timeout=DEADLINE_SECONDS, verify=False) as one:
                    wrong = {"Cookie": "archiver=wrong"}
                    tasks = [asyncio.create_task(one.get("/api/v1/me", headers=wrong)) for _ in range(MANY)]
                    assert (await other.get("/healthz")).status_code == 200
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            assert (await other.get("/api/v1/me")).status_code == 200

    asyncio.run(run())
