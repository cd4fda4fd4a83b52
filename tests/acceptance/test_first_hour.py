"""What a newcomer does in the first hour, with only what the screen says: from a command to a search hit in the browser.

Three ways: `archiver demo`; `archiver up`, `import` and the welcome page; and compose.yaml from `archiver init` on, played
without Docker. There, each service is a process of its own that sees the volumes, the installed wheel, the interpreter and the
libraries of the system, and can write to nothing but its volumes; the repository is not there.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.conftest import Archiver
from tests.browser.conftest import chromium
from tests.support.mailfiles import mbox, message
from tests.support.played_compose import Played, why_not
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually
from tests.support.wheel import ROOT

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
HARD_PASSWORDS = {
    "POSTGRES_PASSWORD": r"a b:c@d/e?f%25#g\h\"i",
    "POSTGRES_APP_PASSWORD": "ö$x{y}&+:@/ ;",
    "VALKEY_PASSWORD": r"""q"u\o t`e$(id)""",
}
"""In .env in single quotes, as docs/running.md says."""
containers = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


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


def test_the_link_of_the_demo_opens_an_archive_with_mail_in_it(demo: Path, browser: Browser) -> None:
    link = eventually(lambda: link_on(demo, "demo"), 180, "a link on the terminal")
    page = open_page(browser)
    page.goto(link)
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.get_by_role("banner")).to_contain_text("Sample data")
    assert "token" not in page.url
    page.locator(".suggested a").first.click()
    expect(page).to_have_url(re.compile("q=invoice"))
    expect(page.locator(".hit").first).to_be_visible()

    other = open_page(browser)
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("has been used or has expired")


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
        expect(page).to_have_url(re.compile(r":\d+/$"))  # where the mail is
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


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("played")
    folder.chmod(0o755)
    made = folder / "made.env"
    subprocess.run([sys.executable, "-m", "archiver", "init", "--file", made], check=True, cwd=ROOT, capture_output=True)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    kept = [line for line in made.read_text().splitlines() if line.partition("=")[0] not in HARD_PASSWORDS]
    env = folder / ".env"
    env.write_text(
        "\n".join([*kept, *(f"{name}='{value}'" for name, value in HARD_PASSWORDS.items()), f"ARCHIVER_PORT={port}"])
    )
    compose = Played(folder, env)
    try:
        compose.up()
        yield compose
    finally:
        compose.close()


def add_administrator(page: Page, played: Played) -> None:
    """With the link as the log of the web process shows it."""
    log = played.containers["web-1"].log
    link = eventually(lambda: re.search(r"http://\S+/welcome#token=\S+", log.read_text()), what="a link in the log of web")
    page.goto(link[0])
    page.get_by_text("My own mail", exact=True).click()
    page.get_by_label("Email address").fill("first@example.net")
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("button.primary").click()
    expect(page).to_have_url(re.compile("/sources"))


def upload(page: Page, content: bytes, mailbox: str) -> str:
    """The id of the import."""
    api, headers = page.request, {"X-CSRF-Token": page.request.get("/api/v1/me").json()["csrf_token"]}
    made = api.post("/api/v1/uploads", headers=headers, data={"name": "old.mbox", "size_bytes": len(content)})
    path = f"/api/v1/uploads/{made.json()['id']}"
    sent = api.patch(path, headers={**headers, "Upload-Offset": "0", "Content-Type": "application/octet-stream"}, data=content)
    assert sent.ok, sent.text()
    assert api.post(f"{path}/complete", headers=headers).ok
    begun = api.post(f"{path}/import", headers=headers, data={"mailbox": mailbox})
    assert begun.ok, begun.text()
    return str(begun.json()["import_id"])


def state_of(page: Page, import_id: str) -> str:
    return str(page.request.get(f"/api/v1/imports/{import_id}").json()["state"])


def search(page: Page, query: str) -> None:
    page.goto("/")
    box = page.get_by_role("combobox")
    box.fill(query)
    box.press("Enter")
    expect(page).to_have_url(re.compile("q="))


@containers
def test_from_nothing_to_a_hit_in_the_browser(played: Played, browser: Browser, port: int) -> None:
    began = time.monotonic()
    context = browser.new_context(locale="en-GB", base_url=f"http://127.0.0.1:{port}")
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    page = context.new_page()
    add_administrator(page, played)
    done = upload(page, mbox([message(number) for number in range(12)]), "ann@example.org")
    assert eventually(lambda: (state := state_of(page, done)) not in ("waiting", "running") and state, 120) == "success"
    eventually(lambda: page.request.get("/api/v1/search?q=number").json()["total"] == 12, what="twelve hits")
    search(page, "number")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator("#total")).to_have_text("12 messages")
    print(f"from the log's link to the hit: {time.monotonic() - began:.1f} s")


@containers
def test_a_command_imports_from_the_mount_that_the_worker_sees_too(played: Played) -> None:
    folder = played.folder / "host" / "import"
    (folder / "more.mbox").write_bytes(mbox([message(number) for number in range(100, 107)]))
    done = played.run("cli", "import", "/import/more.mbox", "--mailbox", "bob@example.org", "--wait")
    assert done.returncode == 0, done.stderr
    query = ("cli", "search", "mailbox:bob@example.org")
    eventually(lambda: "7 messages" in played.run(*query).stderr, what="seven hits")


@containers
def test_a_backup_goes_to_its_mount(played: Played) -> None:
    folder = played.folder / "host" / "backup"
    folder.mkdir(exist_ok=True)
    refused = played.run("cli", "backup", "/backup")
    assert refused.returncode != 0, "the folder belongs to another user"
    assert "Traceback" not in refused.stderr
    os.chown(folder, 10001, 10001)
    done = played.run("cli", "backup", "/backup")
    assert done.returncode == 0, done.stderr
    assert list((folder / "packs").iterdir())


@containers
def test_a_container_sees_its_volumes_and_can_write_to_nothing_else(played: Played) -> None:
    for name in ("web-1", "ingestion-worker-1", "indexing-worker-1"):
        container = played.containers[name]
        assert played.exec(container, "test", "-e", str(ROOT / "compose.yaml")).returncode == 1
        for folder in ("/", "/opt/archiver", "/etc", "/usr"):
            assert played.exec(container, "test", "-w", folder).returncode == 1, f"{name} can write to {folder}"
        assert played.exec(container, "id", "-u").stdout == "10001\n"
        assert played.exec(container, "test", "-w", "/data").returncode == 0
        status = Path(f"/proc/{container.process.pid}/status").read_text()
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"^Uid:\t10001\t", status, re.MULTILINE)
    volume = played.folder / "volumes" / "archive"
    assert not (volume / "logs").exists(), "several workers would rotate one file"


@containers
def test_web_and_workers_can_not_change_the_audit_log(played: Played) -> None:
    script = (
        "import os, psycopg\n"
        "from archiver.config import load_settings\n"
        "with psycopg.connect(load_settings().database_url.get_secret_value()) as connection:\n"
        "    print(connection.execute('SELECT current_user, count(*) > 0 FROM audit_log').fetchone())\n"
        "    connection.execute('DELETE FROM audit_log')\n"
    )
    done = played.exec(played.containers["web-1"], "python", "-c", script)
    assert done.stdout == "('archiver_app', True)\n"
    assert psycopg.errors.InsufficientPrivilege.__name__ in done.stderr


@containers
def test_more_workers_and_a_stop_within_the_grace_period(played: Played) -> None:
    """The last one of this module."""
    played.up(ingestion_worker=2, indexing_worker=3)
    workers = [name for name in played.containers if "worker" in name]
    assert len(workers) == 5
    folder = played.folder / "host" / "import"
    (folder / "last.mbox").write_bytes(mbox([message(number) for number in range(200, 240)]))
    done = played.run("cli", "import", "/import/last.mbox", "--mailbox", "cid@example.org", "--wait")
    assert done.returncode == 0, done.stderr
    web = played.containers["web-1"]
    ended = played.down()
    ours = {name: end for name, end in ended.items() if not name.startswith(("postgres", "valkey", "meilisearch"))}
    assert set(ours) == {*workers, "web-1"}
    assert {name: code for name, (code, _) in ended.items() if code not in (0, -signal.SIGTERM)} == {}
    assert '"web_stopped"' in web.log.read_text(), "uvicorn ends by the signal, after it has finished"
    print("seconds to stop:", {name: round(seconds, 1) for name, (_, seconds) in ended.items()})
