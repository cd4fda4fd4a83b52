"""Selecting, tagging, noting, undoing and deleting; and leafing through mailboxes. By mouse and by keyboard."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.mails import OWNER


def test_tagging_by_keyboard_and_undoing_it(page: Page, site: Site) -> None:
    page.goto("/?q=subject:hostile")
    page.locator(".hit > a").first.focus()
    page.keyboard.press("x")
    expect(page.locator("#selected-count")).to_have_text("1 selected")
    page.locator("#selected summary", has_text="Tag").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Tag", exact=True).first).to_be_focused()
    page.keyboard.type("Look again")
    page.keyboard.press("Enter")
    expect(page.locator(".notice.change")).to_contain_text("1 message has the tag Look again now.")
    expect(page.locator(".hit .chip.tag")).to_have_text("Look again")
    page.locator("#facets").get_by_role("link", name="Look again").click()
    expect(page.locator("#total")).to_have_text("1 message")
    page.go_back()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".notice.change")).to_contain_text("Undone for 1 message.")
    expect(page.locator(".hit .chip.tag")).to_have_count(0)


def test_all_results_are_tagged_by_a_worker(page: Page, site: Site) -> None:
    page.goto("/?q=from:@lanternworks.example")
    total = int(re.sub(r"\D", "", page.locator("#total").inner_text()))
    page.locator(".hit > a").first.focus()
    page.keyboard.press("a")
    page.locator("#select-all input").check()
    expect(page.locator("#selected-count")).to_have_text(f"All {total} results")
    page.locator("#selected summary", has_text="Tag").click()
    page.locator("#bar-tag").fill("files")
    page.get_by_role("button", name="Add tag").click()
    expect(page.locator(".notice.change")).to_contain_text(f"{total} messages have the tag files now.")
    page.goto("/?q=tag:files")
    expect(page.locator("#total")).to_have_text(f"{total} messages")
    page.goto("/tags")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row", name="files").get_by_role("button").click()
    expect(page.get_by_role("row", name="files")).to_have_count(0)


def test_a_note_and_a_link(page: Page, site: Site) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    message = f"/messages/{site.ids['Hostile script']}"
    page.goto(message)
    page.get_by_text("Add a note", exact=True).first.click()
    page.get_by_placeholder("What should be remembered").fill("<script>hurt=1</script> call back")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".note-text")).to_have_text("<script>hurt=1</script> call back")
    assert page.evaluate("window.hurt") is None
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"{site.url}{message}"
    page.goto('/?q=note:"call back"')
    expect(page.locator("#total")).to_have_text("1 message")


def test_deleting_asks_for_a_reason_first(page: Page, site: Site) -> None:
    page.goto("/?q=subject:hostile")
    page.locator(".hit input").first.check()
    page.locator("#selected").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete 1 message")).to_be_visible()
    expect(page.get_by_label("Reason")).to_be_focused()
    page.get_by_role("button", name="permanently").click()
    assert page.url.endswith("/selection"), "a reason is needed"
    page.get_by_role("link", name="Back", exact=True).click()
    expect(page.locator("#list")).to_be_visible()


def test_leafing_through_a_mailbox_by_keyboard(page: Page, site: Site) -> None:
    page.goto("/browse")
    page.get_by_role("link", name="aiko.tanaka").click()
    tree = page.locator(".tree")
    archive = tree.get_by_role("link", name="Archive")
    archive.focus()
    page.keyboard.press("ArrowRight")
    expect(tree.get_by_role("link", name="2022")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".crumbs")).to_contain_text("Archive ›")
    expect(page.locator(".hit").first).to_be_visible()
    page.locator(".hit > a").first.press("Enter")
    expect(page.locator("#reading article")).to_be_visible()
    tree.locator("a[aria-current]").focus()
    page.keyboard.press("ArrowLeft")
    expect(tree.get_by_role("link", name="Archive")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(tree.get_by_role("link", name="2022")).to_be_hidden()
    page.get_by_role("link", name="Search here").click()
    expect(page.get_by_role("combobox")).to_have_value(re.compile(r"^mailbox:aiko\.tanaka@\S+ in:Archive/"))
    expect(page.locator("#total")).to_contain_text("message")


def test_browsing_on_a_phone_and_without_scripts(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/browse?find=ann@")
    page.get_by_role("link", name=OWNER).click()
    expect(page.locator(".hit").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    html = page.request.get(page.url).text()
    assert "browse.js" in html
    assert 'href="/browse/' in html
