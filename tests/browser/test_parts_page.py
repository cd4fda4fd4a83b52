"""The page of parts as a person sees it: wide and narrow, light and dark, and when a part goes away."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.conftest import Archiver, running
from tests.browser.conftest import ARTEFACTS

__all__ = ["running"]


def open_page(browser: Browser, running: Archiver, width: int, scheme: str) -> tuple[Page, list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if "127.0.0.1" not in request.url else None)
    page.goto(f"http://127.0.0.1:{running.port}/parts")
    return page, problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_it_shows_that_everything_runs(browser: Browser, running: Archiver, width: int, scheme: str) -> None:
    page, problems = open_page(browser, running, width, scheme)
    expect(page.get_by_role("heading", name="Archiver")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("All components are running.")
    expect(page.get_by_role("row", name="postgres")).to_contain_text("PostgreSQL 18")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing sticks out"
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"start-{width}-{scheme}.png")
    assert problems == []
    page.close()


def test_it_notices_by_itself_that_a_part_is_gone_and_back(browser: Browser, running: Archiver) -> None:
    page, _ = open_page(browser, running, 1280, "light")
    search = running.pid("search")
    assert search is not None
    os.kill(search, signal.SIGSTOP)
    try:
        expect(page.get_by_role("row", name="search")).to_contain_text("not responding")
        expect(page.get_by_role("status")).to_contain_text("A component is not responding")
    finally:
        os.kill(search, signal.SIGCONT)
    expect(page.get_by_role("status")).to_have_text("All components are running.")
    page.close()
