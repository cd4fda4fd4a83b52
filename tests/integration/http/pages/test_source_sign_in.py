"""Only administrators sign in for sources, and an attempt that is not theirs is not there."""

from __future__ import annotations

import pytest

from archiver.db.ids import uuid7
from archiver.db.sql import run
from tests.integration.http.conftest import Company
from tests.support.oauth_provider import CLIENT_SECRET, oauth_provider


@pytest.mark.parametrize("name", ["alice", "auditor"])
def test_others_are_refused(company: Company, name: str) -> None:
    with company.client(name) as client:
        token = client.headers["X-CSRF-Token"]
        assert client.get(f"{company.url}/sources/sign-in/callback?state=x&code=y").status_code == 403
        assert client.get(f"{company.url}/sources/sign-in/x").status_code == 403
        for path in ("add/imap/sign-in", "sign-in/x"):
            assert client.post(f"{company.url}/sources/{path}", data={"csrf": token}).status_code == 403


def test_an_unknown_attempt_is_not_found_and_a_form_that_is_wrong_comes_back(company: Company) -> None:
    with company.client("admin") as admin:
        token = admin.headers["X-CSRF-Token"]
        assert admin.get(f"{company.url}/sources/sign-in/callback?state=x&code=y").status_code == 404
        fields = {"csrf": token, "name": "Mine", "setting.host": "imap.example.org", "setting.user": "ann@example.org"}
        page = admin.post(f"{company.url}/sources/add/imap/sign-in", data=fields)
        assert page.status_code == 422
        assert "oauth_client_id" in page.text
        assert "imap.example.org" in page.text


def test_the_page_leads_to_the_provider_without_the_secret(company: Company) -> None:
    with oauth_provider("token") as provider, company.client("admin", follow_redirects=True) as admin:
        settings = {"host": "localhost", "user": "ann@example.org", **provider.settings()}
        fields = {f"setting.{name}": value for name, value in settings.items()}
        fields |= {"csrf": admin.headers["X-CSRF-Token"], "name": "Mine", "secret.client_secret": CLIENT_SECRET}
        page = admin.post(f"{company.url}/sources/add/imap/sign-in", data=fields)
        assert page.status_code == 200, page.text
        assert f"{provider.url}/authorize?" in page.text
        assert CLIENT_SECRET not in page.text


def test_a_card_asks_to_sign_in_again_when_a_mailbox_was_refused(company: Company) -> None:
    settings = '{"host": "localhost", "user": "ann", "auth": "xoauth2", "oauth_auth_url": "http://localhost/a"}'
    source = "INSERT INTO ingestion_sources (id, kind, name, status, settings) VALUES (:id, 'imap', :name, 'active', :settings)"
    box = """INSERT INTO mailboxes (id, source_id, address, failures, status_message)
        VALUES (:id, :source_id, 'ann@elsewhere.example', 1, 'the server rejected the credentials: revoked')"""
    ids = {"Fine": uuid7(), "Refused": uuid7()}
    with company.engine.begin() as connection:
        for name, source_id in ids.items():
            run(connection, source, id=source_id, name=name, settings=settings)
        run(connection, box, id=uuid7(), source_id=ids["Refused"])
    try:
        with company.client("admin") as admin:
            page = admin.get(f"{company.url}/sources").text
        assert f'action="/sources/{ids["Refused"]}/sign-in"' in page
        assert f'action="/sources/{ids["Fine"]}/sign-in"' not in page
    finally:
        with company.engine.begin() as connection:
            run(connection, "UPDATE ingestion_sources SET removed_at = now() WHERE id = ANY(:ids)", ids=list(ids.values()))
