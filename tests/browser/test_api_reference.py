"""The API reference tries routes with the session of whoever looks at it."""

from __future__ import annotations

import shlex
import subprocess

from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, Site


def test_a_search_is_sent_and_its_curl_does_the_same(page: Page, site: Site) -> None:
    page.goto("/settings/api#search")
    form = page.locator("details#search form")
    form.get_by_label("q", exact=True).fill("okapi's")
    form.get_by_label("limit", exact=True).fill("1")
    form.get_by_role("button", name="Send").click()
    expect(form.locator("[data-status]")).to_contain_text("200")
    expect(form.locator("[data-content]")).to_contain_text('"total"')
    curl = form.locator("[data-curl]").inner_text()
    assert f"{site.url}/api/v1/search?q=okapi%27s&limit=1" in curl
    made = site.ask("POST", "/me/keys", json={"name": "curl", "scopes": ["search"], "password": PASSWORD})
    done = subprocess.run(["bash", "-c", f"KEY={shlex.quote(made['key'])}; {curl} --silent"], capture_output=True, text=True)
    assert '"total"' in done.stdout, done.stdout + done.stderr


def test_a_change_asks_first_and_an_error_is_shown(page: Page) -> None:
    page.goto("/settings/api")
    page.locator("details#add_user > summary").click()
    form = page.locator("details#add_user form")
    form.get_by_label("Body").fill('{"email": "no address"}')
    page.once("dialog", lambda dialog: dialog.dismiss())
    form.get_by_role("button", name="Send").click()
    expect(form.locator("[data-answer]")).to_be_hidden()
    page.once("dialog", lambda dialog: dialog.accept())
    form.get_by_role("button", name="Send").click()
    expect(form.locator("[data-status]")).to_contain_text("4")
    expect(form.locator("[data-content]")).to_contain_text('"code"')


def test_a_schema_opens_by_its_link(page: Page) -> None:
    page.goto("/settings/api")
    page.locator("details#add_user > summary").click()
    page.locator("details#add_user").get_by_role("link", name="NewUser").first.click()
    expect(page.locator("#schema-NewUser")).to_have_attribute("open", "")
