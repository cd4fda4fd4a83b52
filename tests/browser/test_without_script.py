"""Searching and reading with a browser that runs no script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site, open_context


@pytest.fixture
def plain(browser: Browser, site: Site, cookie: dict[str, Any]) -> Iterator[Page]:
    context = open_context(browser, site, cookie, java_script_enabled=False, viewport={"width": 1280, "height": 800})
    yield context.new_page()
    context.close()


def test_search_page_on_read_and_go_back(plain: Page) -> None:
    plain.goto("/")
    plain.get_by_role("combobox").fill("subject:conversation")
    plain.get_by_role("button", name="Search", exact=True).click()
    expect(plain).to_have_url(re.compile(r"\?q=subject%3Aconversation"))
    expect(plain.locator("#total")).to_have_text("60 messages")
    plain.get_by_role("link", name="Next page").click()
    expect(plain.locator(".more")).to_contain_text("51–60")
    expect(plain.locator(".hit")).to_have_count(1)  # one conversation
    plain.locator(".hit > a").first.click()
    expect(plain.get_by_role("heading", level=1)).to_contain_text("The long conversation")
    expect(plain.locator(".mail-text")).to_contain_text("Answer")
    other = plain.locator(".conversation a.other:visible").first
    wanted = other.get_attribute("data-id")
    other.click()
    expect(plain.locator(".opened")).to_have_attribute("data-id", wanted or "")
    plain.get_by_role("link", name="Back").first.click()
    expect(plain.get_by_role("combobox")).to_have_value("subject:conversation")


def test_html_mail_facets_and_sorting(plain: Page, site: Site) -> None:
    plain.goto(f"/messages/{site.ids['Hostile font']}")
    expect(plain.frame_locator("iframe").locator("p")).to_have_text("Text in a far font")
    plain.goto("/")
    plain.get_by_role("link", name="Oldest").click()
    expect(plain).to_have_url(re.compile("sort=oldest"))
    plain.locator("#facets a", has_text="partner.example").first.click()
    expect(plain.locator("#total")).not_to_have_text("0 messages")


def test_the_door(plain: Page, site: Site) -> None:
    plain.context.clear_cookies()
    plain.goto("/settings")
    expect(plain).to_have_url(re.compile(r"/sign-in\?next=%2Fsettings"))
    plain.get_by_label("Email address").fill("ann@lanternworks.example")
    plain.get_by_label("Password").fill("correct horse battery")
    plain.get_by_role("button", name="Sign in").click()
    expect(plain).to_have_url(f"{site.url}/settings")
    plain.get_by_role("button", name="Sign out").click()
    expect(plain).to_have_url(re.compile("/sign-in"))
