"""Quick everywhere: commands by Ctrl-K, going back in an instant, nothing shifts, installable, files shared by other apps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site, open_context
from tests.browser.mails import mail

_SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value; })
    .observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => setTimeout(() => done(sum), 100));
})"""


def test_commands_go_to_pages_search_and_act_by_keys_alone(page: Page, site: Site) -> None:
    page.goto("/")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Commands")
    expect(palette).to_be_visible()
    page.keyboard.type("dash")
    expect(palette.get_by_role("option").first).to_contain_text("Dashboard")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.url}/dashboard")
    page.keyboard.press("Control+k")
    page.keyboard.type("quokka 4711 <b>")
    expect(palette.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Search the archive")).to_have_value("quokka 4711 <b>")
    page.goto(f"/messages/{site.ids['Zephyr plans and pictures']}")
    page.keyboard.press("Control+k")
    page.keyboard.type("header")
    expect(palette.get_by_role("option").first).to_contain_text("on this page")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/header$"))
    page.keyboard.press("Control+k")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(palette).to_be_hidden()


def test_the_palette_offers_only_what_its_user_may_open(page: Page, site: Site) -> None:
    page.goto("/")
    for link in page.locator("#palette .places a").all():
        path = link.get_attribute("href") or ""
        assert page.request.get(site.url + path).status == 200, path


def test_on_a_phone_going_back_keeps_the_list(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 700})
    page.goto("/?q=from:@partner.example")
    page.locator(".hit").nth(6).scroll_into_view_if_needed()
    asked: list[str] = []
    page.evaluate("document.querySelector('.hit').dataset.kept = 'yes'")
    page.locator(".hit > a").nth(6).click()
    expect(page.locator("#reading article h1")).to_be_visible()
    expect(page).to_have_url(re.compile("/messages/"))
    expect(page.locator("#list")).to_be_hidden()
    scrolled = page.evaluate("document.querySelector('main.panes').scrollTop")
    assert scrolled == 0
    page.on("request", lambda request: asked.append(request.url))
    page.go_back()
    expect(page.locator("#list")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/\?q="))
    assert page.locator(".hit").first.get_attribute("data-kept") == "yes", "the same list"
    assert page.evaluate("document.querySelector('main.panes').scrollTop") > 0
    assert [url for url in asked if "part=results" in url] == []


def test_the_next_message_is_prepared_and_not_read(page: Page, site: Site) -> None:
    page.goto("/?q=from:@partner.example")
    rows = page.locator(".hit > a")
    following = rows.nth(1).get_attribute("data-id")
    with page.expect_response(lambda answer: answer.url.endswith("/prepare")) as prepared:
        rows.nth(0).click()
    assert prepared.value.url.endswith(f"/messages/{following}/prepare")
    assert prepared.value.status == 204
    looks = site.ask("GET", "/audit", params={"action": "message.read", "limit": 100})["items"]
    assert following not in {one["object_id"] for one in looks[:1]}


@pytest.mark.parametrize("path", ["/", "/?q=invoice", "/dashboard", "/sources", "/files?q=invoice"])
def test_nothing_shifts_while_a_page_loads(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("networkidle")
    assert page.evaluate(_SHIFTS) < 0.02


def test_it_can_be_installed(page: Page, site: Site) -> None:
    page.goto("/")
    link = page.locator("link[rel=manifest]").get_attribute("href") or ""
    answer = page.request.get(site.url + link)
    manifest = answer.json()
    assert answer.headers["content-type"].startswith("application/manifest+json")
    assert manifest["display"] == "standalone"
    for icon in manifest["icons"]:
        shown = page.request.get(site.url + icon["src"])
        assert (shown.status, shown.headers["content-type"]) == (200, icon["type"])


def test_without_the_server_there_is_a_page_that_says_so(browser: Browser, site: Site, cookie: dict[str, Any]) -> None:
    context = open_context(browser, site, cookie)
    page = context.new_page()
    page.goto("/")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    context.set_offline(True)
    page.goto("/dashboard")
    expect(page.get_by_role("heading", name="No connection")).to_be_visible()
    names = page.evaluate(
        "caches.keys().then((names) => Promise.all(names.map((name) => caches.open(name).then((one) => one.keys()))))"
    )
    assert sum(map(len, names)) == 4, "no mail on the device"
    context.set_offline(False)
    context.close()


def test_a_mail_shared_by_another_app_is_archived(browser: Browser, site: Site, cookie: dict[str, Any]) -> None:
    context = open_context(browser, site, cookie)
    page = context.new_page()
    page.goto("/")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()  # the worker takes part from the next page on
    raw = mail(164, "Shared from a phone", text="Kept.", sender="Bo Berg <bo@reading.example>").as_string()
    page.evaluate(
        """(raw) => {
          const sent = { method: "post", action: "/share", enctype: "multipart/form-data" };
          const form = Object.assign(document.createElement("form"), sent);
          const field = Object.assign(document.createElement("input"), { type: "file", name: "mail" });
          const files = new DataTransfer();
          files.items.add(new File([raw], "kept.eml", { type: "message/rfc822" }));
          field.files = files.files;
          form.append(field);
          document.body.append(form);
          form.submit();
        }""",
        raw,
    )
    expect(page.get_by_text("kept.eml")).to_be_visible()
    page.get_by_role("button", name="Archive").click()
    page.get_by_role("link", name="archived").click()
    expect(page.locator("h1")).to_have_text("Shared from a phone")
    assert page.evaluate("caches.open('shared').then((one) => one.keys()).then((keys) => keys.length)") == 0
    context.close()
