"""Mail that attacks its reader. Nothing runs, nothing is asked for, nothing leaves."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, expect

from tests.browser.conftest import Site, open_context
from tests.browser.listener import Listener
from tests.browser.mails import hostile

_KINDS = sorted(hostile("http://nowhere.example"))


def requests_of(page: Page) -> list[str]:
    """Everything that the browser asks for, in all frames, whether it is let or not."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.context.on("request", note)
    return asked


@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_runs_and_nothing_is_asked_for(page: Page, site: Site, away: Listener, kind: str) -> None:
    asked = requests_of(page)
    before = len(away.asked)
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    address = f"/messages/{site.ids[f'Hostile {kind}']}"
    page.goto(address)
    frame = page.frame_locator("iframe.mail-html")
    expect(frame.locator("body")).to_be_attached()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.hurt") is None
    assert "PWNED" not in frame.locator("body").inner_text()
    for bad in ("script", "iframe", "object", "embed", "form", "input", "button", "link", "base", "svg", "math", "video"):
        assert frame.locator(f"body {bad}").count() == 0, bad
    assert [url for url in asked if not url.startswith((site.url, "data:"))] == []
    assert len(away.asked) == before
    assert dialogs == []
    assert page.url == site.url + address
    assert len(page.frames) == 2


def test_the_frame_has_an_origin_of_its_own_and_a_strict_policy(page: Page, site: Site) -> None:
    address = f"/messages/{site.ids['Hostile script']}"
    page.goto(address)
    frame = page.locator("iframe.mail-html")
    sandbox = (frame.get_attribute("sandbox") or "").split()
    assert not {"allow-scripts", "allow-same-origin", "allow-forms", "allow-top-navigation"} & set(sandbox)
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None, "another origin"
    answer = page.request.get(f"{site.url}{address}/body")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert policy.startswith("sandbox ")
    assert "allow-scripts" not in policy
    assert "allow-same-origin" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_remote_images_are_never_fetched_by_the_browser(browser: Browser, site: Site, away: Listener) -> None:
    """The server fetches them, and not from its own network, where the listener is."""
    context = open_context(browser, site, site.session())
    page = context.new_page()
    asked, before = requests_of(page), len(away.asked)
    page.goto(f"/messages/{site.ids['Hostile pixel']}")
    page.wait_for_load_state("networkidle")
    with page.expect_response(lambda answer: "/body?remote=1" in answer.url):
        page.get_by_role("link", name="Load").click()
    picture = page.frame_locator("iframe.mail-html").locator("img").first
    expect(picture).to_have_attribute("src", "data:,")
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith((site.url, "data:"))] == []
    assert len(away.asked) == before
    context.close()


def test_links_lead_nowhere_by_script_and_say_where_they_lead(page: Page, site: Site, away: Listener) -> None:
    page.goto(f"/messages/{site.ids['Hostile links']}")
    links = page.frame_locator("iframe.mail-html").locator("a[href]")
    addresses = [one.get_attribute("href") or "" for one in links.all()]
    assert addresses == [f"{away.url}/ping"]
    assert links.first.get_attribute("ping") is None
    assert "noreferrer" in (links.first.get_attribute("rel") or "")
    page.get_by_text("1 link in this message").click()
    expect(page.locator("details code", has_text=away.url)).to_be_visible()


def test_names_and_subjects_are_never_html(page: Page, site: Site) -> None:
    attack = "<img src=x onerror=hurt=1>\"'{{7*7}}</title><script>hurt=1</script>"
    page.goto("/")
    page.get_by_role("combobox").fill(attack)
    page.wait_for_load_state("networkidle")
    page.goto(f"/?{page.evaluate('(q) => new URLSearchParams({ q }).toString()', attack)}")
    assert page.get_by_role("combobox").input_value() == attack
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img").count() == 0
    for path in ("/sign-in?next=//evil.example/", "/sign-in?next=/\\evil.example", "/sign-in?next=https://evil.example"):
        assert 'name="next" value="/"' in page.request.get(site.url + path).text()
