"""The page of dead letters: filters, reasons, selection, next page, details, bytes, and who may do what."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from archiver.db.ids import uuid7
from tests.integration.http.conftest import Client, Company


@pytest.fixture(autouse=True)
def letters(company: Company) -> Iterator[None]:
    for number in range(60):
        add(company, "timed out" if number else "<b>too large</b>")
    yield
    company.act("DELETE FROM dead_letters")


def add(company: Company, reason: str, raw: bytes | None = None) -> UUID:
    letter_id = uuid7()
    company.act(
        "INSERT INTO dead_letters (id, kind, source_id, mailbox_id, provider_key, reason, raw_sha256, payload)"
        " VALUES (:i, 'message', :s, :m, :k, :r, :h, '{\"size\": 7}')",
        i=letter_id,
        s=company.source,
        m=company.mailboxes["alice"],
        k=secrets.token_hex(4),
        r=reason,
        h=hashlib.sha256(raw).digest() if raw else None,
    )
    return letter_id


def get(client: Client, path: str) -> Any:
    return client.get(f"{client.base_url}".rstrip("/") + path)


def post(client: Client, **form: str) -> Any:
    data = {"csrf": client.headers["X-CSRF-Token"], **form}
    return client.post(f"{client.base_url}".rstrip("/") + "/dead-letters", data=data, follow_redirects=True)


def test_filters_reasons_and_the_next_page(company: Company) -> None:
    company.act("UPDATE users SET may_read_all = true WHERE email = 'admin@example.org'")
    with company.client("admin") as client:
        first = get(client, "/dead-letters").text
        assert "60 entries" in first
        assert "Retry the 59 that failed for this reason" in first
        assert "<b>too large" not in first
        following = first.partition("cursor=")[2].partition('"')[0]
        assert get(client, f"/dead-letters?cursor={following}").text.count('type="checkbox" name="id.') == 10
        assert "1 entry" in get(client, "/dead-letters?contains=LARGE&kind=message").text
        assert "0 entries" in get(client, "/dead-letters?older=24").text
        for wrong in ("kind=x", "older=x", "source=x", "cursor=x"):
            assert get(client, f"/dead-letters?{wrong}").status_code == 400, wrong


def test_selected_and_all_that_match_are_retried_or_discarded(company: Company) -> None:
    one = add(company, "odd")
    with company.client("admin") as client:
        assert "1 entry is retried." in post(client, do="retry", **{f"id.{one}": "on"}).text
        assert "59 entries are retried." in post(client, do="retry-all", reason="timed out", kind="message").text
        assert company.value("SELECT count(*) FROM dead_letters WHERE next_try_at IS NOT NULL") == 60
        company.act("UPDATE ingestion_sources SET status = 'paused' WHERE id = :i", i=company.source)
        refused = post(client, do="retry", id=str(one))
        company.act("UPDATE ingestion_sources SET status = 'active' WHERE id = :i", i=company.source)
        assert (refused.status_code, "is paused: resume it" in refused.text) == (409, True)
        post(client, do="discard-all", contains="timed")
        assert company.value("SELECT count(*) FROM dead_letters WHERE discarded_at IS NOT NULL") == 59
        assert "59 entries" in get(client, "/dead-letters?discarded=true").text
    with company.client("auditor") as client:
        assert post(client, do="retry", id=str(one)).status_code == 403
        assert 'name="do"' not in get(client, "/dead-letters").text
    with company.client("alice") as client:
        assert get(client, "/dead-letters").status_code == 403


def test_details_and_bytes(company: Company) -> None:
    raw = company.raw["alice"]
    kept = add(company, "odd", raw)
    company.act("UPDATE users SET may_read_all = true WHERE email = 'admin@example.org'")
    with company.client("admin") as client:
        shown = get(client, f"/dead-letters/{kept}").text
        assert "Payload" in shown
        assert get(client, f"/dead-letters/{kept}/bytes").content == raw
        lost = company.value("SELECT id FROM dead_letters WHERE raw_sha256 IS NULL LIMIT 1")
        assert get(client, f"/dead-letters/{lost}/bytes").status_code == 404
    company.act("UPDATE users SET may_read_all = false WHERE email = 'admin@example.org'")
    with company.client("admin") as client:
        assert get(client, f"/dead-letters/{kept}/bytes").status_code == 404
