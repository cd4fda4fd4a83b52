"""The pages and the API of erasures: request, search, review, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from archiver.db.engine import make_engine
from archiver.maintenance.retention import erase
from archiver.secrets import credentials_keyring
from archiver.store.open import open_archive
from tests.integration.http.conftest import Client, Company

FORM = {"name": "DSR <b>14</b>", "reason": "Letter of 3 May", "addresses": "alice@example.org", "terms": "Nobody Known"}


@pytest.fixture(autouse=True)
def forgotten(company: Company) -> Iterator[None]:
    yield
    company.act("DELETE FROM erasures")
    company.act("UPDATE users SET may_read_all = false WHERE email = 'admin@example.org'")


def get(client: Client, path: str) -> Any:
    return client.get(f"{client.base_url}".rstrip("/") + path)


def post(client: Client, path: str, **form: str) -> Any:
    data = {"csrf": client.headers["X-CSRF-Token"], **form}
    return client.post(f"{client.base_url}".rstrip("/") + path, data=data, follow_redirects=True)


def work(company: Company) -> None:
    """As the indexing worker does."""
    assert company.settings.database_url is not None
    engine = make_engine(company.settings.database_url.get_secret_value(), "test")
    archive = open_archive(company.settings, engine)
    erase(company.settings, engine, archive, credentials_keyring(company.settings))
    archive.close()
    engine.dispose()


def test_from_the_request_to_the_review(company: Company) -> None:
    with company.client("admin") as client:
        page = post(client, "/retention/erasures", **FORM)
        assert "being searched" in page.text
        assert "<b>14" not in page.text
        work(company)
        (item,) = client.get("/erasures").json()["items"]
        path = f"/retention/erasures/{item['id']}"
        found = client.get(f"/erasures/{item['id']}/messages").json()["items"]
        assert {one["message_id"] for one in found} >= {str(company.messages["alice"])}
        assert {one["subject"] for one in found} == {None}, "an administrator does not read mail"
        company.act("UPDATE users SET may_read_all = true WHERE email = 'admin@example.org'")
        shown = client.get(f"/erasures/{item['id']}/messages").json()["items"]
        assert all(one["subject"] for one in shown)
        chosen = f"m-{found[0]['message_id']}"
        refused = post(client, path, do="exclude", **{chosen: "on"})
        assert refused.status_code == 400
        assert "needs a reason" in refused.text
        assert "tax law" in post(client, path, do="exclude", reason="tax law", **{chosen: "on"}).text
        assert client.get(f"/erasures/{item['id']}").json()["found_excluded"] == 1
        assert "tax law" not in post(client, path, do="include", **{chosen: "on"}).text
        assert post(client, path, do="explode").status_code == 400
        assert "being searched" in post(client, path, do="search").text
        early = post(client, path, do="approve")
        assert early.status_code == 400
        assert "has not ended yet" in early.text
        assert "rejected" in post(client, path, do="reject").text
        assert client.get(f"/erasures/{item['id']}").json()["addresses"] == []
        assert client.post(f"/erasures/{item['id']}/approve", json={}).status_code == 409


def test_who_sees_it(company: Company) -> None:
    with company.client("admin") as client:
        made = client.post("/erasures", json={"name": "DSR 15", "reason": "x", "addresses": ["a@b"]}).json()
        assert client.post("/erasures", json={"name": "DSR 15", "reason": "x", "addresses": ["a@b"]}).status_code == 409
        assert client.post("/erasures", json={"name": "DSR 16", "reason": "x", "addresses": ["b"]}).status_code == 400
        assert client.get(f"/erasures/{made['id']}/receipt").json()["receipt"] is None
    with company.client("auditor") as client:
        assert "DSR 15" in get(client, "/retention/erasures").text
        assert 'action="/retention/erasures"' not in get(client, "/retention/erasures").text
        assert post(client, "/retention/erasures", **FORM).status_code == 403
        assert post(client, f"/retention/erasures/{made['id']}", do="reject").status_code == 403
    with company.client("bob") as client:
        assert get(client, "/retention/erasures").status_code == 403
        assert get(client, f"/retention/erasures/{made['id']}").status_code == 403
