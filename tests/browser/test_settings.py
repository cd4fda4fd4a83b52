"""One's own account, keys, users and the audit log. Everything here happens to users of the test's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from archiver.access.login import totp
from tests.browser.conftest import PASSWORD, Site, open_context
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture
def somebody(site: Site) -> Iterator[str]:
    email = f"{uuid4().hex[:8]}@lanternworks.example"
    user = site.ask("POST", "/users", json={"email": email, "password": PASSWORD, "role": "user"})
    yield email
    site.ask("DELETE", f"/users/{user['id']}")


@pytest.fixture
def theirs(browser: Browser, site: Site, somebody: str) -> Iterator[Page]:
    context = open_context(browser, site, site.session(somebody), viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


def test_german_and_dark_and_back(theirs: Page) -> None:
    theirs.goto("/settings")
    light = theirs.evaluate("getComputedStyle(document.body).backgroundColor")
    theirs.get_by_label("Language").select_option("de")
    theirs.get_by_label("Theme").select_option("dark")
    theirs.get_by_role("button", name="Save").click()
    expect(theirs.locator("html")).to_have_attribute("lang", "de")
    expect(theirs.get_by_role("heading", level=1)).to_have_text("Einstellungen")
    assert theirs.evaluate("getComputedStyle(document.body).backgroundColor") != light
    for path in ("/", "/dashboard", "/search-help", "/settings/keys"):
        theirs.goto(path)
        expect(theirs.locator("html")).to_have_attribute("lang", "de")
    theirs.goto("/settings")
    theirs.locator("select[name=language]").select_option("en")
    theirs.locator("select[name=theme]").select_option("")
    theirs.get_by_role("button", name="Speichern").click()
    expect(theirs.get_by_role("heading", level=1)).to_have_text("Settings")


def test_a_password_is_changed_and_other_sessions_end(theirs: Page, site: Site, somebody: str) -> None:
    other = site.session(somebody)
    theirs.goto("/settings")
    expect(theirs.get_by_role("row").filter(has_text="End session")).to_have_count(1)
    theirs.get_by_label("Current password").first.fill("not my password at all")
    theirs.get_by_label("New password").fill("another horse battery")
    theirs.get_by_role("button", name="Change password").click()
    expect(theirs.get_by_role("alert")).to_be_visible()
    theirs.get_by_label("Current password").first.fill(PASSWORD)
    theirs.get_by_label("New password").fill("another horse battery")
    theirs.get_by_role("button", name="Change password").click()
    expect(theirs.get_by_role("alert")).to_have_count(0)
    answer = httpx2.get(f"{site.url}/settings", cookies={"archiver": other["value"]}, timeout=DEADLINE_SECONDS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=%2Fsettings")
    site.session(somebody, "another horse battery")


def test_a_session_elsewhere_is_ended(theirs: Page, site: Site, somebody: str) -> None:
    other = site.session(somebody)
    theirs.goto("/settings")
    theirs.get_by_role("button", name="End session").click()
    expect(theirs.get_by_role("button", name="End session")).to_have_count(0)
    assert httpx2.get(f"{site.url}/settings", cookies={"archiver": other["value"]}, timeout=DEADLINE_SECONDS).status_code == 303


def test_a_second_factor_is_asked_for_once_it_is_on(theirs: Page, stranger: Page, somebody: str) -> None:
    theirs.goto("/settings")
    theirs.locator("#factor-password").fill(PASSWORD)
    theirs.get_by_role("button", name="Set up").click()
    secret = theirs.locator(".notice code").inner_text().replace(" ", "")
    theirs.get_by_label("Code").fill("000000")
    theirs.get_by_role("button", name="Turn on").click()
    expect(theirs.get_by_role("alert")).to_be_visible()
    theirs.locator("#factor-password").fill(PASSWORD)
    theirs.get_by_role("button", name="Set up").click()
    secret = theirs.locator(".notice code").inner_text().replace(" ", "")
    theirs.get_by_label("Code").fill(code_of(secret))
    theirs.get_by_role("button", name="Turn on").click()
    expect(theirs.locator(".notice.good")).to_contain_text("Two-factor authentication is on.")
    recovery = theirs.locator(".notice.good li code").first.inner_text()
    stranger.goto("/sign-in")
    stranger.get_by_label("Email address").fill(somebody)
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("alert")).to_contain_text("code from your authenticator")
    stranger.get_by_label("Password").fill(PASSWORD)
    stranger.get_by_label("Authenticator code").fill(recovery)
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("combobox")).to_be_visible()


def code_of(secret: str) -> str:
    import base64
    import time

    return totp.code_at(base64.b32decode(secret), int(time.time()) // 30)


def test_a_key_is_shown_once_works_and_is_revoked(theirs: Page, site: Site) -> None:
    theirs.goto("/settings/keys")
    theirs.get_by_label("Name").fill("reader")
    theirs.get_by_role("button", name="Create API key").click()
    expect(theirs.get_by_role("alert")).to_be_visible()
    theirs.get_by_label("Name").fill("reader")
    theirs.get_by_label("search", exact=True).check()
    theirs.get_by_role("button", name="Create API key").click()
    expect(theirs.get_by_role("alert")).to_contain_text("enter your password")
    theirs.get_by_label("Name").fill("reader")
    theirs.get_by_label("search", exact=True).check()
    theirs.get_by_label("Your password").fill(PASSWORD)
    theirs.get_by_role("button", name="Create API key").click()
    key = theirs.locator(".notice.good code").inner_text()
    headers = {"Authorization": f"Bearer {key}"}
    assert httpx2.get(f"{site.url}/api/v1/search?q=x", headers=headers, timeout=DEADLINE_SECONDS).status_code == 200
    theirs.goto("/settings/keys")
    assert key not in theirs.content()
    theirs.get_by_role("button", name="Revoke").click()
    expect(theirs.locator("main")).to_contain_text("revoked")
    assert httpx2.get(f"{site.url}/api/v1/search?q=x", headers=headers, timeout=DEADLINE_SECONDS).status_code == 401


def test_a_user_is_added_granted_a_mailbox_and_sees_it(page: Page, browser: Browser, site: Site) -> None:
    email = f"{uuid4().hex[:8]}@elsewhere.example"
    page.goto("/settings/users")
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password").fill("short")
    page.locator("form:has(#email)").evaluate("form => form.noValidate = true")
    page.get_by_role("button", name="Add user").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Add user").click()
    row = page.get_by_role("row").filter(has_text=email)
    expect(row).to_be_visible()
    context = open_context(browser, site, site.session(email))
    theirs = context.new_page()
    theirs.goto("/")
    expect(theirs.locator("#list h2")).to_have_text("You cannot read any mailbox yet")
    expect(theirs.get_by_role("link", name="Sources")).to_have_count(0)
    theirs.goto("/settings/users")
    expect(theirs.get_by_role("heading")).to_have_text("Access denied")
    row.get_by_label("Mailbox, pattern or source to grant").fill("ann@lanternworks.example")
    row.get_by_role("button", name="Grant").click()
    expect(row).to_contain_text("ann@lanternworks.example")
    theirs.goto("/?q=zephyr")
    expect(theirs.locator(".hit")).to_have_count(1)
    row.get_by_role("button", name=re.compile("^Revoke")).first.click()
    expect(row).not_to_contain_text("ann@lanternworks.example")
    theirs.reload()
    expect(theirs.locator(".hit")).to_have_count(0)
    context.close()
    page.on("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("row").filter(has_text=email)).to_have_count(0)


def test_the_audit_log_is_filtered_and_verified(page: Page) -> None:
    page.goto("/settings/audit")
    page.get_by_label("Action").fill("source.added")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr").first).to_contain_text("source.added")
    page.get_by_role("button", name="Verify chain").click()
    expect(page.get_by_role("status").filter(has_text="chain")).to_contain_text("The audit chain is intact")


def test_a_wrong_password_lets_nobody_in(stranger: Page, site: Site, somebody: str) -> None:
    stranger.goto("/sources")
    stranger.get_by_label("Email address").fill(somebody)
    stranger.get_by_label("Password").fill("wrong horse battery")
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("alert")).to_contain_text("is incorrect")
    expect(stranger.get_by_label("Email address")).to_have_value(somebody)
    stranger.goto("/")
    expect(stranger).to_have_url(re.compile("/sign-in"))
