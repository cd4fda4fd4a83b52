"""WCAG 2.2 AA by axe-core, on every page and in the states that scripts create, in both themes; and what screen readers say."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.places import PATHS, address
from tests.browser.records import add_notice
from tests.support.npm import install

_VERSION = "4.14.0"
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """async (options) => {
  const found = await axe.run({ exclude: [["iframe.mail-html"]] }, options);
  const describe = (rule, node) => `${rule.id}: ${node.html.slice(0, 160)} | ${node.failureSummary.slice(0, 300)}`;
  return found.violations.flatMap((rule) => rule.nodes.map((node) => describe(rule, node)));
}"""


@cache
def _source() -> str:
    folder = install(f"axe-core-{_VERSION}", (f"axe-core@{_VERSION}",), ("axe-core/axe.min.js",), "axe-core")
    return (folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")


def violations(page: Page, **options: Any) -> list[str]:
    """The mail itself is excluded: nobody here wrote it, and its frame lets no script in."""
    page.evaluate(_source())  # through the debugger, which the page's content policy does not bind
    return list(page.evaluate(_RUN, {"resultTypes": ["violations"], **options}))


def in_both_themes(page: Page) -> list[str]:
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    found = violations(page, runOnly={"type": "tag", "values": _TAGS})
    page.emulate_media(color_scheme="dark")
    return found + violations(page, runOnly={"type": "rule", "values": ["color-contrast", "link-in-text-block"]})


@pytest.mark.parametrize("name", PATHS)
def test_every_page(page: Page, site: Site, name: str) -> None:
    page.goto(address(site, PATHS[name]))
    assert in_both_themes(page) == []


def test_results_with_suggestions_selection_and_an_open_conversation(page: Page) -> None:
    page.goto("/?q=from:@partner.example")
    page.locator(".hit > a").first.click()
    page.locator("#reading article").wait_for()
    page.locator(".hit input[type=checkbox]").first.check()
    page.get_by_role("combobox").fill("from:bo")
    expect(page.get_by_role("option").first).to_be_visible()
    assert in_both_themes(page) == []


def test_a_phone(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 375, "height": 740})
    for name in ("found", "message", "add-source", "settings"):
        page.goto(address(site, PATHS[name]))
        assert in_both_themes(page) == [], name
    page.goto("/?q=invoice")
    page.locator("#facets summary").click()
    assert in_both_themes(page) == []


def test_menus_and_dialogs(page: Page) -> None:
    page.goto("/?q=invoice")
    page.locator("details.menu summary").first.click()
    assert in_both_themes(page) == []
    page.keyboard.press("Escape")
    page.locator("#content").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert in_both_themes(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("a")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()
    assert in_both_themes(page) == []


def test_pages_for_those_who_are_not_signed_in(stranger: Page) -> None:
    stranger.goto("/sign-in")
    assert in_both_themes(stranger) == []
    stranger.goto("/demo")
    assert in_both_themes(stranger) == []
    stranger.goto("/sign-in")
    stranger.get_by_label("Email address").fill("nobody@example.org")
    stranger.get_by_label("Password").fill("wrong horse")
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_role("alert")).to_be_visible()
    assert in_both_themes(stranger) == []


def test_a_notice_of_a_hold_keeps_its_lines_and_is_acknowledged(stranger: Page, site: Site) -> None:
    stranger.goto(f"/hold-notices/{add_notice(site, 'Second lamp case')}")
    assert stranger.locator(".note-text").inner_text() == "Please delete nothing about the lamps.\nThank you."
    stranger.locator("button.primary").click()
    expect(stranger.get_by_role("status")).to_be_visible()
    assert in_both_themes(stranger) == []


@pytest.mark.parametrize("action", ["hold", "delete"])
def test_what_asks_for_a_reason_before_many_messages_change(page: Page, action: str) -> None:
    page.goto("/?q=subject:hostile")
    page.locator(".hit input[type=checkbox]").first.check()
    page.locator(f"button[name=do][value={action}]").first.evaluate("one => one.click()")  # it may be inside a menu
    expect(page.locator("#reason")).to_be_visible()
    assert in_both_themes(page) == []


def test_what_a_screen_reader_is_told_about_a_search(page: Page) -> None:
    page.goto("/?q=zephyr")
    expect(page.locator("body")).to_match_aria_snapshot("""
      - navigation "Main navigation":
        - link "Search"
      - search:
        - combobox "Search the archive": zephyr
      - main "Search":
        - heading "Search" [level=1]
        - region "Search results":
          - status: 1 message
          - list:
            - listitem:
              - checkbox "Select message"
              - link /Zephyr plans and pictures/
        - region "Message":
          - heading "No message selected" [level=2]
    """)


def test_what_a_screen_reader_is_told_about_a_message(page: Page, site: Site) -> None:
    page.goto(address(site, PATHS["message"]))
    expect(page.locator("article.message")).to_match_aria_snapshot("""
      - article:
        - heading "Zephyr plans and pictures" [level=1]
        - region /Message from/:
          - time
          - list "Attachments":
            - listitem:
              - link "Preview notes.txt"
            - listitem:
              - link "Preview dot.png"
            - listitem:
              - link "Preview plan.pdf"
            - listitem:
              - link "Preview page.html"
          - text: /The plans are attached/
    """)


def test_what_a_screen_reader_is_told_about_a_refused_form(page: Page) -> None:
    page.goto("/sources/add/imap")
    for field in page.locator("main form input:not([type=hidden]), main form select, main form textarea").all():
        assert field.evaluate("one => one.labels.length > 0 || Boolean(one.getAttribute('aria-label'))"), field
    page.locator("main form[method=post]").evaluate("form => { form.noValidate = true; }")
    page.locator("main form button.primary").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert in_both_themes(page) == []
