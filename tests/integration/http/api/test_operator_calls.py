"""Operator calls: by an administrator, and by signed requests that can neither be repeated nor changed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from archiver.access.operator_signature import sign_request
from archiver.config import load_settings
from archiver.db.ids import uuid7
from tests.integration.http.conftest import Company, Served

KEY = "k" * 40
PAUSE, RESUME = "/api/v1/operator/queues/ingestion/pause", "/api/v1/operator/queues/ingestion/resume"


@pytest.fixture(scope="module")
def signed_url(company: Company, variables: dict[str, str]) -> Iterator[str]:
    """The same archive, served by a process that has the key."""
    with Served(load_settings({**variables, "OPERATOR_HMAC_KEY": KEY}, Path("none"))) as served:
        yield served.url


def headers(path: str, body: bytes = b"", **changes: Any) -> dict[str, str]:
    values = {"method": "POST", "timestamp": str(int(time.time())), "nonce": secrets.token_hex(16), "key": KEY, **changes}
    signature = sign_request(values["key"], values["method"], path, values["timestamp"], values["nonce"], body)
    return {
        "X-Operator-Timestamp": values["timestamp"],
        "X-Operator-Nonce": values["nonce"],
        "X-Operator-Signature": signature,
        "Content-Type": "application/json",
    }


def post(url: str, path: str, sent: dict[str, str], body: bytes = b"") -> httpx2.Response:
    return httpx2.post(f"{url}{path}", headers=sent, content=body, timeout=60)


def test_a_signed_request_works_once(company: Company, signed_url: str) -> None:
    first = headers(PAUSE)
    answer = post(signed_url, PAUSE, first)
    assert (answer.status_code, answer.json()["paused"]) == (200, True), answer.text
    assert post(signed_url, PAUSE, first).status_code == 401, "a replay"
    assert post(signed_url, RESUME, headers(RESUME)).json()["paused"] is False
    actors = company.value("SELECT string_agg(DISTINCT actor, ',') FROM audit_log WHERE action LIKE 'queue.%'")
    assert actors == "operator"


@pytest.mark.parametrize("skew", [-301, 301])
def test_a_clock_that_is_wrong_is_refused(signed_url: str, skew: int) -> None:
    assert post(signed_url, PAUSE, headers(PAUSE, timestamp=str(int(time.time()) + skew))).status_code == 401


def test_whatever_is_changed_is_refused(company: Company, signed_url: str) -> None:
    replay, body = "/api/v1/operator/replay", b'{"kind": "job"}'
    assert post(signed_url, replay, headers(replay, body), b'{"kind": "message"}').status_code == 401, "another body"
    assert post(signed_url, RESUME, headers(PAUSE)).status_code == 401, "another path"
    assert post(signed_url, f"{PAUSE}?x=1", headers(PAUSE)).status_code == 401, "another query"
    assert post(signed_url, PAUSE, headers(PAUSE, method="GET")).status_code == 401, "another method"
    assert post(signed_url, PAUSE, headers(PAUSE, key="x" * 40)).status_code == 401, "another key"
    assert post(signed_url, PAUSE, headers(PAUSE, nonce="short")).status_code == 401
    assert post(signed_url, PAUSE, {**headers(PAUSE), "X-Operator-Timestamp": "1e9"}).status_code == 401
    assert post(company.url, PAUSE, headers(PAUSE)).status_code == 401, "a server without the key"
    assert httpx2.get(f"{signed_url}/api/v1/status", headers=headers(PAUSE)).status_code == 401, "no other route"


def test_administrators_only(company: Company) -> None:
    with company.client("auditor") as client:
        assert client.post("/operator/queues/ingestion/pause").status_code == 403
    with company.client("admin") as client:
        drained = client.post("/operator/queues/indexing/drain", params={"wait_seconds": 1}).json()
        assert (drained["paused"], drained["counts"]["active"]) == (True, 0)
        assert client.post("/operator/queues/indexing/resume").json()["paused"] is False
        assert client.post("/operator/queues/other/pause").status_code == 400
        assert client.post("/operator/schedules/reconcile-index/run").status_code == 202
        assert client.post("/operator/schedules/reindex/run").status_code == 400
        company.act("INSERT INTO outbox (id, queue, job, sent_at) VALUES (:i, 'indexing', 'reindex', now())", i=uuid7())
        assert client.post("/operator/queues/indexing/requeue").json() == {"jobs": 1}
        company.act("DELETE FROM outbox")


def letter(company: Company, reason: str, source: UUID, hours: int = 0) -> None:
    company.act(
        "INSERT INTO dead_letters (id, kind, source_id, mailbox_id, provider_key, reason, last_failed_at)"
        " VALUES (:i, 'message', :s, :m, :k, :r, now() - :h * interval '1 hour')",
        i=uuid7(),
        s=source,
        m=company.mailboxes["alice"],
        k=secrets.token_hex(4),
        r=reason,
        h=hours,
    )


def test_replay_by_filter_and_why_not(company: Company) -> None:
    paused = uuid7()
    company.act("INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:i, 'fake', 'asleep', 'paused')", i=paused)
    for reason, source, hours in (
        ("timed out", company.source, 5),
        ("timed out", company.source, 0),
        ("too large", company.source, 5),
    ):
        letter(company, reason, source, hours)
    letter(company, "timed out", paused, 5)
    with company.client("admin") as client:
        listed = client.get("/dead-letters", params={"reason_contains": "TIMED", "older_than_hours": 1, "kind": "message"})
        assert len(listed.json()["items"]) == 2
        body = {"reason": "timed out", "older_than_hours": 1}
        done = client.post("/operator/replay", content=json.dumps(body), headers={"Content-Type": "application/json"}).json()
        assert done["retried"] == 1
        ((cause, count),) = done["refused"].items()
        assert ("'asleep' is paused" in cause, count) == (True, 1)
        assert company.value("SELECT count(*) FROM dead_letters WHERE next_try_at IS NOT NULL") == 1
        one = company.value("SELECT id FROM dead_letters WHERE source_id = :s", s=paused)
        assert client.post(f"/dead-letters/{one}/retry").status_code == 409
    company.act("DELETE FROM dead_letters")
