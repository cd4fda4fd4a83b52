"""A mailbox is added by signing in at its provider, and its credentials are renewed the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ARTEFACTS, Site, open_context
from tests.support.dovecot import TOKEN, Dovecot, message
from tests.support.oauth_provider import CLIENT_ID, CLIENT_SECRET, oauth_provider
from tests.support.waiting import eventually


@pytest.fixture
def traveller(browser: Browser, site: Site, cookie: dict[str, Any]) -> Iterator[Page]:
    """Signed in as the administrator, and free to visit another server."""
    context = open_context(browser, site, cookie, viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()


def test_sign_in_at_a_provider_adds_the_mailbox_and_renews_its_credentials(
    traveller: Page, site: Site, dovecot: Dovecot
) -> None:
    page = traveller
    dovecot.fill("oauth", "INBOX", [message(1)])
    with oauth_provider(TOKEN) as provider:
        page.goto("/sources/add/imap")
        page.get_by_label("Name", exact=True).fill("By sign-in")
        page.get_by_label("Host").first.fill("localhost")
        page.get_by_label("Port").first.fill(str(dovecot.port))
        page.get_by_label("TLS").select_option("none")
        page.get_by_label(re.compile("^User$")).fill("oauth")
        page.get_by_label("Auth", exact=True).select_option("xoauth2")
        page.get_by_label("OAuth client ID").fill(CLIENT_ID)
        page.get_by_label("OAuth auth URL").fill(f"{provider.url}/authorize")
        page.get_by_label("OAuth token URL").fill(f"{provider.url}/token")
        page.get_by_label("OAuth scope").fill("mail")
        page.get_by_label("Client secret").fill(CLIENT_SECRET)
        page.get_by_role("button", name="Sign in at the provider").click()
        page.screenshot(path=ARTEFACTS / "source-sign-in.png")
        page.get_by_role("link", name="Continue to 127.0.0.1").click()
        page.get_by_role("link", name="Allow").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("By sign-in")
        source = page.url.rpartition("/")[2]
        eventually(lambda: site.ask("GET", f"/sources/{source}/runs")["items"], what="the first run")
        assert site.ask("GET", f"/sources/{source}/runs")["items"][0]["archived"] == 1
        assert "oauth_provider" not in site.ask("GET", f"/sources/{source}")["settings"], "none was chosen"
        shown = site.ask("GET", f"/sources/{source}")
        assert CLIENT_SECRET not in str(shown)
        page.get_by_role("button", name="Sign in again").click()
        page.get_by_role("link", name="Continue to 127.0.0.1").click()
        page.get_by_role("link", name="Allow").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("By sign-in")
        assert [one["grant_type"] for one in provider.asked].count("authorization_code") == 2
        page.get_by_role("button", name="Sign in again").click()
        page.get_by_role("link", name="Continue to 127.0.0.1").click()
        page.get_by_role("link", name="Deny").click()
        expect(page.locator("main")).to_contain_text("access_denied")
    site.ask("DELETE", f"/sources/{source}")


def test_the_server_of_an_address_is_found_and_shown(page: Page) -> None:
    page.goto("/sources/add/imap")
    page.get_by_label("Your address").fill("ann@gmail.com")
    page.get_by_role("button", name="Find the server").click()
    expect(page.get_by_role("status")).to_contain_text("imap.gmail.com")
    expect(page.get_by_role("status")).to_contain_text("app password")
    expect(page.get_by_label("Host").first).to_have_value("imap.gmail.com")
    expect(page.get_by_label(re.compile("^User$"))).to_have_value("ann@gmail.com")
    page.screenshot(path=ARTEFACTS / "find-server.png", full_page=True)
