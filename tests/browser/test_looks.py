"""How the pages look, to people and to the programs that read them aloud. The screenshots are for eyes."""
# ruff: noqa: E501 - scripts for the browser

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import ARTEFACTS, Site
from tests.browser.places import PATHS, address

_SIZES = ((375, 740), (1280, 800), (2560, 1300))

_STICKS_OUT = """() => [...document.querySelectorAll("body *")].filter((one) => {
  if (one.closest(".unseen, dialog") || !one.checkVisibility()) return false;  // a closed menu has boxes, too
  for (let at = one.parentElement; at && !at.matches("main, .pane, body"); at = at.parentElement)
    if (getComputedStyle(at).overflowX !== "visible") return false;  // cut off or scrolled, on purpose
  const box = one.getBoundingClientRect();
  return box.width > 1 && box.right > innerWidth + 1 && getComputedStyle(one).position !== "fixed";
}).map((one) => one.outerHTML.slice(0, 120))"""

_UNNAMED = """() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, progress, iframe, [role=img]")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }))
  .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("title") || one.textContent.trim() ||
    (one.labels && [...one.labels].some((label) => label.textContent.trim())) ||
    one.querySelector?.("img[alt]:not([alt=''])") ||
    (one.getAttribute("aria-labelledby") || "").split(" ").some((id) => document.getElementById(id)?.textContent.trim())))
  .map((one) => one.outerHTML.slice(0, 120))"""

_OUTLINE = """() => [...document.querySelectorAll("h1, h2, h3, h4")].filter((one) => one.checkVisibility() && !one.closest("dialog"))
  .map((one) => Number(one.tagName[1]))"""

_CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] / 255 + under[i] * (1 - top[3] / 255));
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (one) => { const layers = []; for (let at = one; at; at = at.parentElement) layers.unshift(channels(getComputedStyle(at).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]); };
  const bad = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !one.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    if (one.closest("svg, .unseen, option, :disabled")) continue;
    const look = getComputedStyle(one), under = ground(one), ink = over(channels(look.color), under);
    const [a, b] = [light(ink), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(look.fontSize) >= 24 || (parseFloat(look.fontSize) >= 18.66 && Number(look.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.add(`${ratio.toFixed(2)} ${one.outerHTML.slice(0, 100)}`);
  }
  return [...bad];
}"""


@pytest.mark.parametrize("name", PATHS)
def test_every_page_at_every_width_in_both_themes(page: Page, site: Site, name: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    page.emulate_media(reduced_motion="reduce")  # colours are there at once
    page.goto(address(site, PATHS[name]))
    page.wait_for_load_state("networkidle")
    for width, height in _SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=ARTEFACTS / f"{name}-{width}-{scheme}.png")
            assert page.evaluate(_CONTRAST) == [], f"{width} {scheme}"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.evaluate(_STICKS_OUT) == [], width
    assert page.evaluate(_UNNAMED) == []
    outline = page.evaluate(_OUTLINE)
    assert all(after - before <= 1 for before, after in pairwise(outline)), outline
    assert page.locator("main").count() == 1
    if page.locator("nav.rail").count():
        assert page.locator("nav[aria-label], [role=search]").count() >= 2
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.title().strip() not in ("", "Archiver")


def test_an_open_menu_of_a_tagged_message_fits_on_a_phone(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    page.goto(address(site, PATHS["invitation"]))
    page.locator(".tags-line .menu summary").click()
    expect(page.get_by_label("Tag", exact=True)).to_be_visible()
    assert page.evaluate(_STICKS_OUT) == []


def test_the_open_message_beside_the_list(page: Page) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    page.emulate_media(reduced_motion="reduce")
    page.goto("/?q=from:@partner.example&sort=oldest")
    page.locator(".hit > a").first.click()
    page.locator("#reading article").wait_for()
    for width, height in _SIZES[1:]:
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=ARTEFACTS / f"reading-{width}-{scheme}.png")
            assert page.evaluate(_CONTRAST) == [], f"{width} {scheme}"
        assert page.evaluate(_STICKS_OUT) == [], width


@pytest.mark.parametrize("language", ["en", "de", "fr", "es"])
def test_the_names_in_the_navigation_fit_on_one_line(
    browser: Browser, site: Site, cookie: dict[str, Any], language: str
) -> None:
    context = browser.new_context(base_url=site.url, locale=language)
    context.add_cookies([cookie])  # type: ignore[list-item]
    page = context.new_page()
    for width in (320, 375, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/settings")  # the current page is bold, and has the longest name in German
        assert page.locator("html").get_attribute("lang") == language
        links = page.locator(".rail a:not(.brand):visible")
        wide = "all => all.filter((one) => one.scrollWidth > one.clientWidth || one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent)"
        assert links.evaluate_all(wide) == [], width
        assert links.evaluate_all("all => new Set(all.map((one) => one.offsetHeight)).size") == 1, width
    context.close()


@pytest.mark.parametrize("width", [320, 640, 900])
def test_nothing_is_lost_at_any_zoom(page: Page, site: Site, width: int) -> None:
    """640 px is 1280 at 200 %, 320 px is 1280 at 400 %."""
    page.set_viewport_size({"width": width, "height": 400})
    for name in ("search", "message", "sources", "activity", "settings", "users"):
        page.goto(address(site, PATHS[name]))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.evaluate(_STICKS_OUT) == [], name
        assert page.get_by_role("combobox", name="Search the archive").is_visible()


@pytest.mark.parametrize("name", ["found", "thread", "message", "sources", "dashboard", "settings", "alerts"])
def test_the_layout_mirrors_for_languages_from_right_to_left(page: Page, site: Site, name: str) -> None:
    """No catalogue has such a language yet; a page is turned as its `dir` would turn it."""
    page.goto(address(site, PATHS[name]))
    page.evaluate("document.documentElement.dir = 'rtl'")
    for width, height in _SIZES[:2]:
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=ARTEFACTS / f"{name}-{width}-mirrored.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        left = _STICKS_OUT.replace("box.right > innerWidth + 1", "(box.right > innerWidth + 1 || box.left < -1)")
        assert page.evaluate(left) == [], width
    assert page.locator("nav.rail").evaluate("one => one.getBoundingClientRect().right >= innerWidth - 1")


def test_without_motion_nothing_moves(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    for path in ("/", "/sources", "/styleguide"):
        page.goto(path)
        moving: list[Any] = page.evaluate(
            """() => [...document.querySelectorAll("*")].filter((one) => { const look = getComputedStyle(one);
            return look.transitionDuration.split(", ").some((time) => time !== "0s") || look.animationName !== "none"; })
            .map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert moving == []
