"""Only administrators sign in for sources, and an attempt that is not theirs is not there."""

from __future__ import annotations

import pytest

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
