"""Too long, too large, and from the other side."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.mails import SCRIPTS


def test_every_script_is_found_and_shown(page: Page, site: Site) -> None:
    page.goto("/")
    for script, words in SCRIPTS.items():
        subject = f"{script}: {words}"
        word = {"Bidi": "mixed", "Emoji": "Rechnung"}.get(script) or max(words.split(), key=len)
        page.get_by_role("combobox").fill(f'"{word}"')
        page.locator(f'.hit > a[data-id="{site.ids[subject]}"]').click()
        expect(page.locator("#reading h1")).to_have_text(subject)
        expect(page.locator("#reading .mail-text")).to_contain_text(words)


def test_a_subject_of_ten_thousand_characters_leaves_room_for_the_mail(page: Page, site: Site) -> None:
    for start in ("Endless", "Unbroken"):
        subject = next(one for one in site.ids if one.startswith(start))
        for width in (375, 1280):
            page.set_viewport_size({"width": width, "height": 700})
            page.goto(f"/messages/{site.ids[subject]}")
            heading = page.get_by_role("heading", level=1).bounding_box()
            assert heading is not None
            assert heading["height"] < 300
            page.goto(f"/?q={start.lower()}")
            row = page.locator(".hit").first.bounding_box()
            assert row is not None
            assert row["height"] < 120


def test_a_mail_of_three_megabytes_opens(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids['A price list of three megabytes']}")
    frame = page.frame_locator("iframe.mail-html")
    expect(frame.locator("h1")).to_have_text("Prices")
    expect(frame.locator("tr").last).to_contain_text("Lamp")


def test_right_to_left_text_begins_at_the_right(page: Page, site: Site) -> None:
    page.goto(f"/messages/{site.ids['رسالة من اليمين إلى اليسار']}")
    paragraph = page.frame_locator("iframe.mail-html").locator("p")
    assert paragraph.evaluate("one => getComputedStyle(one).direction") == "rtl"
    subject = f"Hebrew: {SCRIPTS['Hebrew']}"
    page.goto(f"/messages/{site.ids[subject]}")
    assert page.locator(".mail-text").evaluate("one => one.matches(':dir(rtl)')")
