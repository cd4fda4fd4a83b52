"""The pages under twenty users: how long the server takes, how much goes over the wire, how soon results are on the screen.

    python -m benchmarks.web [--messages N] [--users N] [--seconds N]

A whole `archiver up` on a data folder of its own, with generated mail in it. Each user asks for a page once a second, as
somebody does who reads; the CPU time of the web process says what a page costs whatever else the machine does.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import httpx2
import psutil
import psycopg
from playwright.sync_api import sync_playwright

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from benchmarks.report import figure, load
from tests.acceptance.conftest import Archiver
from tests.browser.conftest import Site
from tests.support.waiting import eventually

THINK_SECONDS = 1.0
MAILBOXES = 20
WORDS = (
    *("order", "parcel", "offer", "note", "plan", "north", "annexes", "draft", "signature", "paid"),
    *("from:colleague1", "order sent", "subject:parcel"),
)
"""What the generated mail is about: every search has hits."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.web")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder:
        archiver = Archiver(Path(folder) / "data", API_REQUESTS_PER_MINUTE="0")
        try:
            site = Site(archiver.start())
            site.make_administrator()
            fill(site, options.messages)
            for word in WORDS:
                assert site.ask("GET", "/search", params={"q": word})["total"] > 0, word
            pages = {
                "search page": [f"/?q={quote(word)}" for word in WORDS] + ["/"],
                "results while typing": [f"/?part=results&q={quote(word[:n])}" for word in WORDS[:6] for n in (3, 4, 5)],
                "mail view": [f"/messages/{one}" for one in some_messages(site)],
            }
            for name, target in (("search page", 80), ("results while typing", 80), ("mail view", 60)):
                measure(site, name, pages[name], target, options.users, options.seconds)
            wire(site)
            screen(site)
        finally:
            archiver.clean_up()


def fill(site: Site, messages: int) -> None:
    started = time.monotonic()
    site.add_source("bench", mailboxes=MAILBOXES, messages_per_mailbox=messages // MAILBOXES, bytes_per_message=3000)
    while True:
        index = site.ask("GET", "/index")
        if index["messages"] >= messages and not index["waiting"] and not index["states"].get("body"):
            break
        time.sleep(1)
    server = EmbeddedPostgres(DataFolder(site.archiver.data))
    with psycopg.connect(server.url("archiver"), autocommit=True) as connection:
        connection.execute("ANALYZE")  # as the server does by itself within a minute
    figure("messages in the archive", index["messages"], "")
    figure("archived and indexed in", time.monotonic() - started, "s")


def some_messages(site: Site) -> list[str]:
    return [one["id"] for one in site.ask("GET", "/messages", params={"limit": 100})["items"]]


def web_process(site: Site) -> psutil.Process:
    pid = site.archiver.pid("web")
    assert pid is not None
    return psutil.Process(pid)


def measure(site: Site, name: str, pages: list[str], target: int, users: int, seconds: float) -> None:
    """Every user has a connection and a session of their own."""
    web = web_process(site)
    took: list[float] = []
    cookies = [site.session()["value"] for _ in range(min(users, 4))]
    for page in pages:  # once, so that everything is warm
        site.client.get(page)
    before, end = sum(web.cpu_times()[:2]), time.monotonic() + seconds

    def user(number: int) -> None:
        chance = random.Random(number)
        with httpx2.Client(base_url=site.url, timeout=60, cookies={"archiver": cookies[number % len(cookies)]}) as client:
            time.sleep(chance.random() * THINK_SECONDS)
            while time.monotonic() < end:
                started = time.monotonic()
                answer = client.get(chance.choice(pages))
                assert answer.status_code == 200, answer.text[:300]
                took.append(time.monotonic() - started)
                time.sleep(max(0.0, THINK_SECONDS - (time.monotonic() - started)))

    threads = [threading.Thread(target=user, args=(number,)) for number in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles(took, n=20)
    print(f"  {name}: {len(took)} requests of {users} users, load {psutil.getloadavg()[0]:.1f}")
    figure(f"{name}, median", cuts[9] * 1000, "ms")
    figure(f"{name}, p95", cuts[18] * 1000, "ms", f"≤ {target}")
    figure(f"{name}, CPU of the web process", (sum(web.cpu_times()[:2]) - before) / len(took) * 1000, "ms")


def wire(site: Site) -> None:
    """What the first visit takes, with all it refers to; and what of that a proxy which compresses would send."""
    page = site.client.get("/", headers={"Accept-Encoding": "gzip"})
    sent, small = int(page.num_bytes_downloaded), len(gzip.compress(page.content))
    for path in dict.fromkeys(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)):
        answer = site.client.get(path, headers={"Accept-Encoding": "gzip"})
        sent += int(answer.num_bytes_downloaded)
        small += len(gzip.compress(answer.content))
    figure("first page over the wire", sent / 1000, "kB", "≤ 100")
    figure("first page, compressed", small / 1000, "kB")


def screen(site: Site) -> None:
    """From the last key of a word to the first paint of its results, the pause before asking included."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("  no Chromium: nothing measured on a screen")
        return
    took, cost = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(base_url=site.url)
        context.add_cookies([site.session()])  # type: ignore[list-item]
        page = context.new_page()
        page.goto("/")
        page.evaluate(_WATCH)
        for word in WORDS[:9]:
            page.get_by_role("combobox").fill("")
            eventually(lambda: page.evaluate("!new URL(location.href).searchParams.get('q')"))
            page.get_by_role("combobox").press_sequentially(word, delay=60)
            eventually(lambda word=word: page.evaluate("window.painted?.word") == word)
            took.append(page.evaluate("window.painted.at - window.lastKey"))
            cost.append(page.evaluate("window.shift"))
        browser.close()
    figure("results on screen after the last key, median", statistics.median(took), "ms", "≤ 150")
    figure("layout shift", max(cost), "", "0")


_WATCH = """() => {
  window.shift = 0;
  const add = (one) => { if (!one.hadRecentInput) window.shift += one.value; };
  new PerformanceObserver((list) => list.getEntries().forEach(add)).observe({ type: "layout-shift", buffered: true });
  document.querySelector("#q").addEventListener("input", () => { window.lastKey = performance.now(); });
  new MutationObserver(() => requestAnimationFrame(() => {
    const word = new URL(location.href).searchParams.get("q") ?? "";
    window.painted = { word, at: performance.now() };
  })).observe(document.querySelector("main.panes"), { childList: true, subtree: true });
}"""


if __name__ == "__main__":
    main()
