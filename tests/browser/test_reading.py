"""Attachments, the viewer, invitations, headers, print, and links that lie; with hostile mail in each view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.listener import Listener
from tests.browser.mails import hostile
from tests.browser.test_hostile import requests_of

_VIEWS = ("/header", "/files", "/print")


def of(site: Site, subject: str, rest: str = "") -> str:
    return f"/messages/{site.ids[subject]}{rest}"


def test_attachments_have_pictures_and_open_in_the_viewer(page: Page, site: Site) -> None:
    page.goto(of(site, "Zephyr plans and pictures"))
    expect(page.locator(".file")).to_have_count(4)
    pictures = page.locator(".file .thumb img")
    expect(pictures).to_have_count(2)
    for picture in pictures.all():
        eventually_drawn = "one => one.decode().then(() => one.naturalWidth > 0)"
        assert picture.evaluate(eventually_drawn)
    page.get_by_role("link", name="Preview plan.pdf").click()
    expect(page.locator("h1")).to_have_text("plan.pdf")
    assert page.locator(".drawn-page").evaluate("one => one.decode().then(() => one.naturalWidth > 0)")
    expect(page.locator(".holders a")).to_contain_text("The same plan again")


def test_the_viewer_by_keys_alone(page: Page, site: Site) -> None:
    page.goto(of(site, "Zephyr plans and pictures", "/files/0/view"))
    page.keyboard.press("f")
    page.keyboard.type("quokka")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("1 match")
    expect(page.locator(".file-text mark")).to_have_text("quokka")
    page.keyboard.press("n")
    expect(page.locator("h1")).to_have_text("dot.png")
    assert page.locator(".viewed-image").evaluate("one => one.decode().then(() => one.naturalWidth > 0)")
    page.keyboard.press("n")
    expect(page.locator("h1")).to_have_text("plan.pdf")
    page.keyboard.press("p")
    expect(page.locator("h1")).to_have_text("dot.png")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(rf"{of(site, 'Zephyr plans and pictures')}$"))


def test_all_files_of_a_search_and_of_a_conversation(page: Page, site: Site) -> None:
    page.goto("/?q=zephyr")
    page.get_by_role("link", name="All attachments of these results").click()
    expect(page.locator(".file-tile b")).to_have_text(["notes.txt", "dot.png", "plan.pdf", "page.html"])
    page.goto(of(site, "Zephyr plans and pictures"))
    page.get_by_role("link", name="All attachments of this conversation").click()
    expect(page.locator(".file-tile")).to_have_count(4)
    page.locator(".file-tile a").first.click()
    expect(page.locator("h1")).to_have_text("notes.txt")
    page.goto("/files?q=larger:soon")
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_name_that_turns_the_direction_of_writing_does_not_lie(page: Page, site: Site) -> None:
    page.goto(of(site, "The same plan again"))
    expect(page.locator(".file .name")).to_have_text("copyfdp.exe")


def test_an_invitation_is_a_card(page: Page, site: Site) -> None:
    page.goto("/settings")  # sets the cookie of the time zone
    page.goto(of(site, "Invitation to the lamp review"))
    card = page.get_by_role("region", name="Invitation", exact=True)
    expect(card).to_contain_text("Lamp review <b>in the workshop</b>")
    expect(card).to_contain_text("Fri, 3 Jul 2026, 15:00–16:30")
    expect(card).to_contain_text("Workshop 2")


def test_the_header_shows_the_path_and_the_checks(page: Page, site: Site) -> None:
    page.goto(of(site, "From far away"))
    page.get_by_role("link", name="Header").click()
    steps = page.locator(".route li b")
    expect(steps).to_have_text(["laptop", "relay.reading.example", "mx.lanternworks.example"])
    expect(page.locator(".route .slow")).to_contain_text("10 min 02 s")
    expect(page.get_by_role("row", name=re.compile("SPF"))).to_contain_text("failed")
    expect(page.get_by_role("row", name=re.compile("^Message-ID"))).to_contain_text("162@partner.example")


def test_links_that_lie_are_named(page: Page, site: Site) -> None:
    page.goto(of(site, "Your account needs attention"))
    warning = page.locator(".doubtful")
    expect(warning.locator("li")).to_have_count(3)
    expect(warning).to_contain_text("https://www.lanternworks.example/login → evil.example")
    expect(warning).to_contain_text("lanternw0rks.example")


def test_the_print_view_has_all_of_the_mail_on_one_sheet(page: Page, site: Site) -> None:
    answer = page.goto(of(site, "A price list of three megabytes", "/print"))
    assert answer is not None
    assert answer.headers["content-security-policy"].startswith("sandbox ")
    expect(page.get_by_role("heading", level=1, name="A price list of three megabytes")).to_be_visible()
    assert page.locator("iframe").count() == 0
    assert page.locator("tr").count() > 10_000


@pytest.mark.parametrize("kind", sorted(hostile("http://nowhere.example")))
def test_hostile_mail_in_every_view(page: Page, site: Site, away: Listener, kind: str) -> None:
    asked, before = requests_of(page), len(away.asked)
    for view in _VIEWS:
        answer = page.goto(of(site, f"Hostile {kind}", view))
        assert answer is not None
        assert answer.status == 200, view
        assert page.evaluate("window.hurt") is None, view
        assert page.locator("body script, body object, body embed, body form[action^=http], body base").count() == 0, view
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith((site.url, "data:"))] == []
    assert len(away.asked) == before


def test_files_of_hostile_mail_run_nothing(page: Page, site: Site) -> None:
    page.goto(of(site, "Zephyr plans and pictures", "/files/3/view"))
    assert page.evaluate("window.hurt") is None
    for path in ("/files/3", "/files/3/thumbnail", "/files/0/thumbnail", "/files/99/view", "/files/2/pages/99"):
        assert page.request.get(site.url + of(site, "Zephyr plans and pictures", path)).status == 404, path
    shown = page.request.get(site.url + of(site, "Zephyr plans and pictures", "/files/1/thumbnail"))
    assert shown.headers["content-security-policy"].startswith("sandbox")
    again = {"If-None-Match": shown.headers["etag"]}
    assert page.request.get(shown.url, headers=again).status == 304
