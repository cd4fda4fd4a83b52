"""An erasure on request, from the page through the workers to the index."""

from __future__ import annotations

import re
from email.message import EmailMessage

import httpx2
from playwright.sync_api import Page, expect

from tests.browser.conftest import ARTEFACTS, Site
from tests.support.waiting import eventually

PERSON = "zelda@erased.example"


def mail_of(number: int, text: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = f"Zelda Fitz <{PERSON}>"
    message["To"] = "ann@example.org"
    message["Subject"] = f"Zelda {number}"
    message["Message-ID"] = f"<zelda-{number}@erased.example>"
    message["Date"] = "Fri, 1 Mar 2024 10:00:00 +0000"
    message.set_content(text)
    return message


def test_a_person_is_erased_after_review(page: Page, site: Site) -> None:
    ids = [site.hand_in(mail_of(number, f"Nothing lasts, {number}")) for number in (1, 2)]
    site.wait_until_searchable()
    page.goto("/retention")
    page.get_by_role("link", name="Erasures").click()
    page.get_by_label("Case reference").fill("DSR 14")
    page.get_by_label("Reason").fill("Letter of 3 May")
    page.get_by_label(re.compile("Addresses")).fill(PERSON)
    page.get_by_label(re.compile("Names, or")).fill("Zelda Fitz")
    page.get_by_role("button", name="Search", exact=True).last.click()
    expect(page.get_by_role("heading", name=re.compile("DSR 14"))).to_be_visible()
    path = page.url.removeprefix(site.url)
    erasure = path.rpartition("/")[2]
    eventually(lambda: site.ask("GET", f"/erasures/{erasure}")["state"] == "review", 300, "the search for a person")
    page.goto(path)
    boxes = page.locator("input[type=checkbox][name^='m-']")
    expect(boxes).to_have_count(2)
    expect(page.get_by_role("link", name="Zelda 1")).to_be_visible()
    page.locator(f"input[name='m-{ids[1]}']").check()
    page.get_by_placeholder("Reason").fill("an invoice")
    page.get_by_role("button", name="Exclude selected").click()
    expect(page.locator("tr", has_text="an invoice")).to_have_count(1)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=ARTEFACTS / f"erasure-{theme}.png", full_page=True)
    page.set_viewport_size({"width": 375, "height": 740})
    page.screenshot(path=ARTEFACTS / "erasure-375.png", full_page=True)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Approve and erase").click()
    eventually(lambda: site.ask("GET", f"/erasures/{erasure}")["deleted_at"], 300, "the erasure")
    page.goto(path)
    expect(page.locator("main")).to_contain_text("copies: 1, messages: 1")
    expect(page.locator("main")).not_to_contain_text(PERSON)
    gone = httpx2.get(f"{site.url}/api/v1/messages/{ids[0]}", cookies=site.client.cookies, timeout=60)
    assert gone.status_code == 404
    assert site.ask("GET", f"/messages/{ids[1]}")
    eventually(lambda: site.ask("GET", "/search", params={"q": '"nothing lasts 1"'})["total"] == 0, 300, "the index without it")
