"""Retention labels by API and page: who puts them on, what a message says about it, and what auditors do not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.http.conftest import Company


@pytest.fixture(autouse=True)
def unlabelled(company: Company) -> Iterator[None]:
    yield
    company.act("DELETE FROM message_labels")
    company.act("DELETE FROM retention_labels WHERE name NOT IN ('personal', 'keep-until')")
    company.act("UPDATE retention_labels SET hides_from_auditors = false, is_locked = false")


def put(company: Company, who: str, label: str, *names: str, **more: Any) -> Any:
    with company.client(who) as client:
        ids = [str(company.messages[name]) for name in names]
        return client.post(f"/retention-labels/{label}/messages", json={"message_ids": ids, **more})


def test_a_message_says_until_when_it_is_kept_and_by_whom(company: Company) -> None:
    done = put(company, "alice", "keep-until", "alice", keep_until="2040-01-01T00:00:00Z", reason="contract")
    assert (done.status_code, done.json()) == (200, {"changed": 1})
    with company.client("alice") as client:
        told = client.get(f"/messages/{company.messages['alice']}/retention").json()
        assert told["kept_until"] == "2040-01-01T00:00:00Z"
        assert [(one["name"], one["set_by"]) for one in told["labels"]] == [("keep-until", "alice@example.org")]
        page = client.get(f"{company.url}/messages/{company.messages['alice']}").text
        assert "Keep until" in page
        assert "alice@example.org" in page
        (label,) = [one for one in client.get("/retention-labels").json()["items"] if one["name"] == "keep-until"]
        assert label["messages"] == 1
    assert put(company, "bob", "keep-until", "alice", keep_until="2041-01-01T00:00:00Z").status_code == 404
    assert put(company, "alice", "keep-until", "alice").status_code == 400
    assert put(company, "alice", "keep-until", "alice", keep_until="2040-01-01T00:00:00").status_code == 422
    with company.client("alice") as client:
        body = {"message_ids": [str(company.messages["alice"])]}
        assert client.post("/retention-labels/keep-until/removal", json=body).json() == {"changed": 1}


def test_personal_mail_is_nowhere_for_auditors(company: Company) -> None:
    put(company, "alice", "personal", "alice")
    with company.client("auditor") as client:
        before = client.get("/messages").json()["items"]
    with company.client("admin") as client:
        answer = client.put("/retention-labels/personal", json={"title": "Personal", "hides_from_auditors": True})
        assert answer.status_code == 200, answer.text
    message = str(company.messages["alice"])
    with company.client("auditor") as client:
        after = client.get("/messages").json()["items"]
        assert {one["id"] for one in before} - {one["id"] for one in after} == {message}
        for path in ("", "/raw", "/copies", "/thread", "/retention", "/attachments/0"):
            assert client.get(f"/messages/{message}{path}").status_code == 404, path
        assert message not in client.get("/search", params={"q": ""}).text
        thread = client.get(f"/messages/{company.messages['both']}/thread").text
        assert message not in thread
        assert client.get(f"{company.url}/messages/{message}").status_code == 404
    with company.client("alice") as client:
        assert client.get(f"/messages/{message}").status_code == 200


def test_labels_are_defined_on_the_page(company: Company) -> None:
    with company.client("admin") as client:
        page = client.get(f"{company.url}/retention/labels")
        assert page.status_code == 200
        assert "retention:personal" in page.text
        assert client.put("/retention-labels/invoice-8y", json={"title": "Invoices", "is_locked": True}).status_code == 200
        assert client.delete("/retention-labels/invoice-8y").status_code == 204
        assert client.delete("/retention-labels/none").status_code == 404
        assert client.put("/retention-labels/Not%20valid", json={"title": "x"}).status_code == 422
        assert "invoice-8y" in client.get(f"{company.url}/retention/labels?retired=true").text
    with company.client("alice") as client:
        assert client.get(f"{company.url}/retention/labels").status_code == 403
