"""A real Chromium, and one archive that runs for all tests here. Screenshots go to `artefacts/`, for people to look at."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTPUTF8, Policy
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from archiver.access.login.logins import csrf_token
from tests.acceptance.conftest import Archiver
from tests.browser.listener import Listener
from tests.browser.mails import OWNER, hostile, in_variants, mail, odd_mail, to_read, with_files
from tests.browser.records import add_records
from tests.support.waiting import DEADLINE_SECONDS, eventually

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
PASSWORD = "correct horse battery"
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PATIENCE_MS = DEADLINE_SECONDS * 1000
expect.set_options(timeout=_PATIENCE_MS)  # instead of five seconds


@contextmanager
def chromium() -> Iterator[Browser]:
    """It keeps an event loop running, which no other test may meet: for a fixture of a module or package."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian and Ubuntu: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


class Site:
    """An archive with an administrator, a sample organisation, and the mail of `mails.py`."""

    def __init__(self, archiver: Archiver) -> None:
        self.archiver, self.url = archiver, f"http://127.0.0.1:{archiver.port}"
        self.ids: dict[str, str] = {}
        """Messages that were handed in, by subject."""
        self.sources: dict[str, str] = {}
        self.records: dict[str, str] = {}
        """What `records.py` adds, and the mailboxes."""
        self.client = httpx2.Client(base_url=self.url, timeout=DEADLINE_SECONDS)

    def make_administrator(self) -> None:
        token = eventually(lambda: re.search(r"#token=(\S+)", self.archiver.log.read_text()), what="a link in the terminal")
        fields = {"token": token[1], "email": OWNER, "name": "Ann Archer", "password": PASSWORD, "purpose": "own_mail"}
        assert self.client.post("/welcome", data=fields).status_code == 303
        self.client.headers["X-CSRF-Token"] = csrf_token(self.client.cookies["archiver"])

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self.client.request(method, f"/api/v1{path}", **more)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def hand_in(self, message: EmailMessage, policy: Policy = SMTPUTF8) -> str:
        taken = self.ask("POST", "/messages", params={"mailbox": OWNER}, content=message.as_bytes(policy=policy))
        self.ids[str(message["Subject"])] = taken["id"]
        return str(taken["id"])

    def add_source(self, name: str, **settings: Any) -> str:
        given = {"kind": "fake", "name": name, "settings": settings, "secrets": {}}
        source = self.sources[name] = str(self.ask("POST", "/sources", json=given)["id"])
        self.ask("POST", f"/sources/{source}/sync")
        return source

    def add_held_source(self, name: str, hold: Path, **settings: Any) -> str:
        """One that gives no mail while this file exists: only the command line may name files of the server."""
        given = {"kind": "fake", "name": name, "settings": {**settings, "mailboxes": 0}, "secrets": {}}
        source = self.sources[name] = str(self.ask("POST", "/sources", json=given)["id"])
        self.ask("POST", f"/sources/{source}/pause")
        held = f"trouble={json.dumps({'hold_path': str(hold)})}"
        mailboxes = f"mailboxes={settings['mailboxes']}"
        edited = self.archiver.command("source", "edit", name, "--set", held, "--set", mailboxes)
        assert edited.returncode == 0, edited.stderr
        self.ask("POST", f"/sources/{source}/resume")
        self.ask("POST", f"/sources/{source}/sync")
        return source

    def wait_until_searchable(self) -> None:
        def is_idle() -> bool:
            if not all(self.ask("GET", f"/sources/{one}/runs")["items"] for one in self.sources.values()):
                return False
            index = self.ask("GET", "/index")
            return not index["waiting"] and not index["states"].get("body")

        eventually(is_idle, 300, "all mail searchable")

    def session(self, email: str = OWNER, password: str = PASSWORD) -> dict[str, Any]:
        """A new session of this user, as a cookie for a browser."""
        answer = httpx2.post(f"{self.url}/sign-in", data={"email": email, "password": password}, timeout=DEADLINE_SECONDS)
        assert answer.status_code == 303, answer.text
        return {"name": "archiver", "value": answer.cookies["archiver"], "url": self.url, "httpOnly": True, "sameSite": "Lax"}


@pytest.fixture(scope="package")
def away() -> Iterator[Listener]:
    """Another server, which hostile mail tries to reach."""
    with Listener() as listener:
        yield listener


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory, away: Listener) -> Iterator[Site]:
    archiver = Archiver(tmp_path_factory.mktemp("site") / "data")
    try:
        site = Site(archiver.start())
        site.make_administrator()
        site.add_source("Lantern Works", mode="sample", size="small")
        site.add_source(
            "Leaky", mailboxes=1, messages_per_mailbox=8, folders=["INBOX"], trouble={"poison": ["INBOX/0", "INBOX/1"]}
        )
        for number, (name, html) in enumerate(hostile(away.url).items()):
            site.hand_in(mail(300 + number, f"Hostile {name}", html=html))
        for message in (*odd_mail(), with_files(), *to_read()):
            site.hand_in(message)
        for message in in_variants():
            site.hand_in(message)
            site.hand_in(message, SMTPUTF8.clone(linesep="\n"))
        site.wait_until_searchable()
        site.records = add_records(site)
        yield site
        site.client.close()
    finally:
        archiver.clean_up()


@pytest.fixture(scope="package")
def cookie(site: Site) -> dict[str, Any]:
    """One session for all tests that do not end theirs."""
    return site.session()


def open_context(browser: Browser, site: Site, cookie: dict[str, Any] | None, **options: Any) -> BrowserContext:
    context = browser.new_context(base_url=site.url, locale="en-GB", timezone_id="Europe/Berlin", **options)
    context.set_default_timeout(_PATIENCE_MS)
    if cookie is not None:
        context.add_cookies([cookie])  # type: ignore[list-item]
    return context


@pytest.fixture
def page(browser: Browser, site: Site, cookie: dict[str, Any]) -> Iterator[Page]:
    """Signed in as the administrator. Whatever the page complains about, or asks of another server, fails the test."""
    context = open_context(browser, site, cookie, viewport={"width": 1280, "height": 800}, accept_downloads=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda said: problems.append(said.text) if said.type == "error" and "Failed to load" not in said.text else None,
    )
    page.on(
        "request",
        lambda request: problems.append(request.url) if not request.url.startswith((site.url, "data:", "blob:")) else None,
    )
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def stranger(browser: Browser, site: Site) -> Iterator[Page]:
    """Nobody is signed in."""
    context = open_context(browser, site, None)
    yield context.new_page()
    context.close()
