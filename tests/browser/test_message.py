"""Reading: text, HTML, files, conversation, source and proof."""

from __future__ import annotations

import hashlib
import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site

PLANS = "Zephyr plans and pictures"


def test_a_message_shows_all_that_it_is(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids[PLANS]}")
    expect(page.get_by_role("heading", level=1)).to_have_text(PLANS)
    expect(page.locator(".from")).to_contain_text("Bo Berg")
    expect(page.locator(".mail-text")).to_contain_text("The plans are attached.")
    expect(page.locator(".file")).to_have_count(4)
    raw = site.client.get(f"/api/v1/messages/{site.ids[PLANS]}/raw").content
    expect(page.locator(".proof")).to_contain_text("verified just now")
    expect(page.locator(".proof code")).to_have_text(hashlib.sha256(raw).hexdigest())
    page.get_by_text("Stored in 1 mailbox").click()
    expect(page.get_by_role("row", name=re.compile("ann@lanternworks.example"))).to_be_visible()
    page.get_by_text("Message details").click()
    expect(page.locator(".headers-table")).to_contain_text("140@partner.example")


def test_the_original_is_downloaded_byte_for_byte(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids[PLANS]}")
    with page.expect_download() as waiting:
        page.get_by_role("link", name=".eml").click()
    raw = site.client.get(f"/api/v1/messages/{site.ids[PLANS]}/raw").content
    assert waiting.value.path().read_bytes() == raw
    assert waiting.value.suggested_filename.endswith(".eml")
    page.get_by_role("link", name="Message source").click()
    expect(page.locator("pre.source")).to_contain_text("Message-ID: <140@partner.example>")
    page.get_by_role("link", name="Back to message").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(PLANS)


def test_html_and_plain_text_are_two_views_of_one_message(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids['Hostile font']}")
    expect(page.frame_locator("iframe.mail-html").locator("p")).to_have_text("Text in a far font")
    page.get_by_role("link", name="Show plain text").click()
    expect(page.locator(".mail-text")).to_contain_text("Plain text of message 305")
    page.get_by_role("link", name="Show HTML").click()
    expect(page.locator("iframe.mail-html")).to_be_visible()


def test_attachments_can_be_looked_at_without_opening_them(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids[PLANS]}")
    page.get_by_role("link", name="Preview plan.pdf").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("plan.pdf")
    expect(page.locator("main")).to_contain_text("Marsupial invoice 4711")
    drawn = page.get_by_role("img", name="Page 1 of 1")
    expect(drawn).to_be_visible()
    assert drawn.evaluate("one => one.decode().then(() => one.naturalWidth)") > 1000
    assert site.client.get(str(drawn.get_attribute("src")).replace("pages/1", "pages/2")).status_code == 404
    page.get_by_role("link", name="Back to message").click()
    page.get_by_role("link", name="Preview notes.txt").click()
    expect(page.locator("main")).to_contain_text("The quokka is in the second paragraph.")
    page.go_back()
    page.get_by_role("link", name="Preview dot.png").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("dot.png")
    expect(page.locator("main img")).to_have_count(1)
    page.go_back()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download page.html").click()
    assert waiting.value.path().read_bytes() == b"<script>top.hurt=1</script>"


def test_a_conversation_is_walked_through(page: Page, site: Site) -> None:
    page.goto("/?q=subject:conversation&sort=oldest")
    page.locator(".hit > a").first.click()
    reading = page.locator("#reading")
    expect(reading.locator(".headline")).to_contain_text("Conversation: 51 messages around this one")
    reading.locator("summary", has_text="in between").click()
    link = reading.locator(".between a.other").nth(20)
    expect(link).to_contain_text("Answer")  # its new words, without the quote
    wanted = link.get_attribute("data-id")
    link.click()
    opened = reading.locator(f'.opened[data-id="{wanted}"]')
    expect(opened.locator(".quoted")).to_contain_text("what was said")
    expect(reading.locator(".opened")).to_have_count(2)
    opened.get_by_role("button", name="Collapse").click()
    expect(opened).to_be_hidden()
    expect(link).to_be_focused()


def test_variants_of_a_mail_are_one_row_and_lead_to_each_other(page: Page) -> None:
    page.goto("/?q=okapi&sort=oldest")
    rows, reading = page.locator(".hit > a"), page.locator("#reading")
    expect(page.locator("#total")).to_have_text("2 messages")
    expect(rows.locator(".variants")).to_have_text(["2 variants"])  # one row for the conversation
    expect(rows.locator(".count")).to_contain_text("2")
    rows.nth(0).click()
    expect(reading.locator(".headline")).to_contain_text("Conversation with 2 messages")
    expect(reading.locator("a.other")).to_contain_text(["2 variants", "2 variants"])
    other = reading.locator("ul.thread a")
    wanted = other.get_attribute("data-id") or ""
    assert wanted not in [row.get_attribute("data-id") for row in rows.all()]
    other.click()
    expect(reading.locator("article")).to_have_attribute("data-id", wanted)
    expect(reading.locator(".hit-message .opened")).to_have_attribute("data-id", wanted)
    expect(rows.nth(0)).to_have_attribute("aria-current", "true")


def test_a_conversation_is_split_and_joined_again(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids['Re: The okapi has arrived']}")
    expect(page.locator(".headline")).to_contain_text("Conversation with 2 messages")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Split here").click()
    expect(page.locator(".headline")).to_contain_text("Split off by")
    expect(page.locator(".conversation")).to_have_count(0)
    page.get_by_role("button", name="Join again").click()
    expect(page.locator(".headline")).to_contain_text("Conversation with 2 messages")
    expect(page.get_by_role("button", name="Join again")).to_have_count(0)


def test_somebody_else_s_message_is_not_there(page: Page) -> None:
    page.goto("/messages/00000000-0000-4000-8000-000000000000")
    expect(page.get_by_role("heading")).to_have_text("Page not found")
    page.goto("/messages/nonsense")
    expect(page.get_by_role("heading")).to_have_text("Page not found")


def test_mail_is_read_in_its_own_direction_whatever_the_language_of_the_page(page: Page, site: Site) -> None:
    subject = "Hebrew: חשבונית מספר 12 מחברת הפנסים"
    page.goto(f"/messages/{site.ids['رسالة من اليمين إلى اليسار']}")
    assert page.locator("h1").evaluate("one => getComputedStyle(one).direction") == "rtl"
    page.goto(f"/messages/{site.ids[subject]}")
    assert page.locator("h1").evaluate("one => getComputedStyle(one).direction") == "ltr", "it begins with a Latin word"
    assert page.locator(".mail-text").evaluate("one => getComputedStyle(one).unicodeBidi") == "plaintext"
    for direction in ("ltr", "rtl"):
        page.evaluate("direction => { document.documentElement.dir = direction; }", direction)
        assert page.locator(".people .from bdi").first.evaluate("one => getComputedStyle(one).unicodeBidi") == "isolate"
