"""From nothing to the first message that is read: what a new user sees."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

from tests.acceptance.conftest import Archiver, archiver
from tests.browser.conftest import ARTEFACTS
from tests.support.waiting import DEADLINE_SECONDS, eventually

__all__ = ["archiver"]


def test_welcome_a_source_a_search_and_good_bye(browser: Browser, archiver: Archiver) -> None:
    archiver.start()
    token = eventually(lambda: re.search(r"#token=(\S+)", archiver.log.read_text()), what="a link in the terminal")
    context = browser.new_context(base_url=f"http://127.0.0.1:{archiver.port}", locale="en-GB")
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    page = context.new_page()
    page.goto("/")
    expect(page).to_have_url(re.compile("/welcome"))
    page.get_by_label("One-time token").fill("not the token")
    page.get_by_label("Email address").fill("ann@lanternworks.example")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Create administrator").click()
    expect(page.get_by_role("alert")).to_contain_text("That token is not valid")
    expect(page.get_by_label("Email address")).to_have_value("ann@lanternworks.example")
    page.goto(f"/welcome#token={token[1]}")
    expect(page.get_by_label("One-time token")).to_have_value(token[1])
    page.get_by_label("Email address").fill("ann@lanternworks.example")
    page.get_by_label("Your name").fill("Ann Archer")
    page.get_by_label("Password").fill("correct horse battery")
    page.screenshot(path=ARTEFACTS / "welcome.png")
    page.get_by_role("button", name="Create administrator").click()
    expect(page).to_have_url(re.compile("/sources"))
    expect(page.locator("main")).to_contain_text("No sources yet")
    page.get_by_role("link", name="Sample mail").click()
    page.get_by_label("Name", exact=True).fill("Lantern Works")
    page.get_by_label("Mode").select_option("sample")
    page.get_by_role("button", name="Test and add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Lantern Works")
    expect(page.locator(".live progress").first).to_be_visible()
    page.screenshot(path=ARTEFACTS / "first-sync.png")
    expect(page.locator("table", has_text="complete").first).to_be_visible()
    box = page.get_by_role("combobox")
    box.fill("invoice")
    box.press("Enter")
    expect(page).to_have_url(re.compile("q=invoice"))

    def found() -> bool:
        page.reload()
        return page.locator(".hit").count() > 0

    eventually(found, what="a hit", pause=0.5)
    page.locator(".hit > a").first.click()
    expect(page.locator("#reading h1")).to_be_visible()
    page.goto("/settings")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/sign-in"))
    page.goto("/welcome")
    expect(page).to_have_url(re.compile("/sign-in"))
    page.get_by_label("Email address").fill("ann@lanternworks.example")
    page.get_by_label("Password").fill("wrong horse battery")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("is incorrect")
    expect(page.get_by_label("Email address")).to_have_value("ann@lanternworks.example")
    context.close()
