"""What a newcomer does in the first hour, with only what the screen says: from a command to a search hit in the browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.conftest import Archiver
from tests.browser.conftest import chromium
from tests.support.mailfiles import mbox, message
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Path]:
    """`archiver demo` in an empty folder; gives the file with all that its terminal shows."""
    environment = {**Archiver(tmp_path / "unused").environment, "ARCHIVER_PORT": str(free_port())}
    for name in ("ARCHIVER_DATA", "SAMPLE_SOURCES"):
        environment.pop(name)
    screen = tmp_path / "screen"
    with screen.open("w") as output:
        command = [sys.executable, "-m", "archiver", "demo", "--size", "small"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
    yield screen
    process.send_signal(signal.SIGINT)
    process.wait(DEADLINE_SECONDS)


def open_page(browser: Browser) -> Page:
    context = browser.new_context(locale="en-GB")
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    return context.new_page()


def link_on(screen: Path, path: str) -> str:
    found = re.search(rf"http://\S+/{path}#token=\S+", screen.read_text())
    return found[0] if found else ""


@pytest.mark.slow
def test_the_link_of_the_demo_opens_an_archive_with_mail_in_it(demo: Path, browser: Browser) -> None:
    link = eventually(lambda: link_on(demo, "demo"), 180, "a link on the terminal")
    page = open_page(browser)
    page.goto(link)
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.get_by_role("note")).to_contain_text("Sample data")
    assert "token" not in page.url
    page.locator(".suggested a").first.click()
    expect(page).to_have_url(re.compile("q=invoice"))
    expect(page.locator(".hit").first).to_be_visible()

    other = open_page(browser)
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("has been used or has expired")


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["My own mail", "A company's mail"])
def test_mail_that_was_imported_before_the_first_user_is_explained(tmp_path: Path, browser: Browser, purpose: str) -> None:
    archiver = Archiver(tmp_path / "data", SAMPLE_SOURCES="")
    try:
        archiver.start()
        file = tmp_path / "old.mbox"
        file.write_bytes(mbox([message(number) for number in range(12)]))
        done = archiver.command("import", str(file), "--mailbox", "ann@example.org", "--wait")
        assert done.returncode == 0, done.stderr
        page = open_page(browser)
        page.goto(link_on(archiver.log, "welcome"))
        page.get_by_text(purpose, exact=True).click()
        page.get_by_label("Email address").fill("first@example.net")
        page.get_by_label("Password").fill(PASSWORD)
        page.locator("button.primary").click()
        expect(page).to_have_url(re.compile("/sources"))
        box = page.get_by_role("combobox")
        box.fill("number")
        box.press("Enter")
        expect(page).to_have_url(re.compile("q=number"))
        if purpose == "My own mail":
            expect(page.locator(".hit").first).to_be_visible()
            expect(page.locator("#total")).to_have_text("12 messages")
        else:
            expect(page.locator("#list")).to_contain_text("12 messages are archived; you may read none of them")
            page.get_by_role("link", name="Grant access").click()
            expect(page).to_have_url(re.compile("/settings/users"))
    finally:
        archiver.clean_up()
