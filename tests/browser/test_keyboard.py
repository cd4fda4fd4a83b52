"""Search, read and back with no mouse."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect


def test_search_read_and_back_by_keys_alone(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("from:@partner.example")
    expect(page).to_have_url(re.compile("partner.example$"))
    page.keyboard.press("Escape")  # the suggestions, if there are any
    page.keyboard.press("Escape")  # the box
    expect(page.get_by_role("combobox")).not_to_be_focused()
    rows = page.locator(".hit > a")
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    expect(page.locator("#reading article")).to_have_attribute("data-id", rows.nth(0).get_attribute("data-id") or "")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(2)).to_be_focused()
    page.keyboard.press("k")
    expect(rows.nth(1)).to_be_focused()
    expect(page.locator("#reading article")).to_have_attribute("data-id", rows.nth(1).get_attribute("data-id") or "")
    page.keyboard.press("x")
    expect(page.locator(".hit input:checked")).to_have_count(1)
    expect(page.locator("#selected")).to_be_visible()
    page.keyboard.press("x")
    expect(page.locator(".hit input:checked")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator("#reading article")).to_have_count(0)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#reading article")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#reading article")).to_be_visible()


def test_on_a_narrow_screen_enter_opens_the_message_and_escape_comes_back(page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto("/?q=zephyr")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/messages/[0-9a-f-]{36}\?q=zephyr"))
    expect(page.locator("article h1")).to_have_text("Zephyr plans and pictures")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"/\?q=zephyr$"))


def test_keys_are_letters_where_one_types(page: Page) -> None:
    page.goto("/")
    box = page.get_by_role("combobox")
    box.press_sequentially("jxk?/")
    expect(box).to_have_value("jxk?/")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_first_tab_leads_past_the_navigation_and_focus_is_seen(page: Page) -> None:
    page.goto("/dashboard")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    page.goto("/settings")
    seen = []
    for _ in range(25):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                """() => { const one = document.activeElement, look = getComputedStyle(one), box = one.getBoundingClientRect();
                return { name: one.outerHTML.slice(0, 80),
                  top: box.top + document.querySelector("#content").scrollTop,
                  shown: look.outlineStyle !== "none" || look.boxShadow !== "none" }; }"""
            )
        )
    seen = [one for one in seen if not one["name"].startswith("<body")]  # past the last one
    assert len(seen) > 15
    assert all(one["shown"] for one in seen), [one["name"] for one in seen if not one["shown"]]
    in_page = [one for one in seen if "settings/" in one["name"] or "<select" in one["name"] or "password" in one["name"]]
    assert [one["top"] for one in in_page] == sorted(one["top"] for one in in_page), "from top to bottom"
