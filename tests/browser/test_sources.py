"""Sources: adding, watching, changing, removing, and dropping files."""

from __future__ import annotations

import re
import zipfile
from email.policy import SMTP
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Site
from tests.browser.mails import mail
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.waiting import eventually


def test_cards_say_how_each_source_stands(page: Page) -> None:
    page.goto("/sources")
    good = page.locator(".card", has_text="Lantern Works")
    expect(good).to_contain_text("complete")
    leaky = page.locator(".card", has_text="Leaky")
    expect(leaky).to_contain_text("2 not fetched")
    leaky.get_by_role("link", name="Leaky").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Leaky")
    expect(page.locator("details", has_text="folder").first).to_contain_text("INBOX")


def test_every_script_is_loaded_once_and_kept(page: Page, site: Site) -> None:
    scripts: list[str] = []
    page.on("response", lambda answer: scripts.append(answer.url) if answer.url.endswith(".js") else None)
    page.goto("/sources", wait_until="networkidle")
    names = [one.rpartition("/")[2] for one in scripts]
    assert sorted(names) == sorted(set(names)), "two addresses of one script"
    assert {"app.js", "selection.js", "progress.js", "upload.js"} <= set(names)
    for script in scripts:
        assert "immutable" in site.client.get(script).headers["Cache-Control"], script


def test_wrong_values_are_refused_with_the_reason_and_nothing_typed_is_lost(page: Page) -> None:
    page.goto("/sources/add/imap")
    page.get_by_label("Name", exact=True).fill("Nowhere")
    page.get_by_label("Host").first.fill("127.0.0.1")
    page.get_by_label("Port").first.fill("1")
    page.get_by_label(re.compile("^User")).first.fill("ann")
    page.get_by_label(re.compile("^Password")).first.fill("a secret that nobody sees")
    page.get_by_role("button", name="Test and add").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The source could not be saved")
    expect(alert).to_contain_text(re.compile("127.0.0.1|refused", re.I))
    expect(page.get_by_label("Name", exact=True)).to_have_value("Nowhere")
    expect(page.get_by_label("Host").first).to_have_value("127.0.0.1")
    assert "a secret that nobody sees" not in page.content()
    page.goto("/sources")
    expect(page.locator("main")).not_to_contain_text("Nowhere")


def test_an_edit_keeps_the_secret_that_it_does_not_show(page: Page, site: Site, dovecot: Dovecot) -> None:
    dovecot.fill("webuser", "INBOX", [mail(900, "From a real mail server").as_bytes(policy=SMTP)])
    given = {"kind": "imap", "name": "Dovecot", "settings": dovecot.settings("webuser"), "secrets": {"password": PASSWORD}}
    source = site.ask("POST", "/sources", json=given)["id"]
    page.goto(f"/sources/{source}/edit")
    secret = page.get_by_label(re.compile("^Password")).first
    expect(secret).to_have_value("")
    assert f'"{PASSWORD}"' not in page.content()
    page.get_by_text("Mail selection and schedule").click()
    page.get_by_label("Folders out").fill("Junk\nNews")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dovecot")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dovecot")
    assert site.ask("GET", f"/sources/{source}")["settings"]["folders_out"] == ["Junk", "News"]
    site.ask("DELETE", f"/sources/{source}")


def test_pause_resume_sync_and_removal_by_name(page: Page, site: Site) -> None:
    source = site.add_source("Short-lived", mailboxes=1, messages_per_mailbox=3, seed=77)
    page.goto(f"/sources/{source}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".page-head .state")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Sync now").click()
    expect(page.locator("table", has_text="Outcome")).to_contain_text("complete")
    page.locator("summary", has_text="Remove").click()
    page.get_by_label("Also delete its mail").check()
    page.get_by_label(re.compile("type the source's name")).fill("Something else")
    page.get_by_role("button", name="Remove source").click()
    expect(page.locator("main")).to_contain_text("Short-lived")
    page.goto(f"/sources/{source}")
    page.locator("summary", has_text="Remove").click()
    page.get_by_label(re.compile("type the source's name")).fill("Short-lived")
    page.get_by_role("button", name="Remove source").click()
    expect(page).to_have_url(f"{site.url}/sources")
    expect(page.locator("main")).not_to_contain_text("Short-lived")
    del site.sources["Short-lived"]


def test_progress_moves_by_itself(page: Page, site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    source = site.add_held_source("Slow", hold, mailboxes=2, messages_per_mailbox=20, seed=78)
    page.goto(f"/sources/{source}")
    expect(page.locator(".live")).to_be_visible()
    expect(page.locator(".live-boxes tr")).to_have_count(2)
    page.screenshot(path=tmp_path / "progress.png")
    hold.unlink()
    expect(page.locator(".live")).to_be_hidden()
    expect(page.locator("table", has_text="Outcome")).to_contain_text("complete")
    site.ask("DELETE", f"/sources/{source}", params={"delete_mail": "true"})
    del site.sources["Slow"]


def test_a_cycle_that_ends_before_the_first_event_is_seen_to_end(page: Page, site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    source = site.add_held_source("Soon over", hold, mailboxes=1, messages_per_mailbox=5, seed=79)
    eventually(lambda: site.ask("GET", "/runs/running")["items"], what="a cycle that runs")
    held: list[Route] = []
    page.route("**/api/v1/progress", lambda route: held.append(route) if hold.exists() else route.continue_())
    page.goto(f"/sources/{source}")
    expect(page.locator(".live")).to_be_visible()
    hold.unlink()
    eventually(lambda: site.ask("GET", f"/sources/{source}/runs")["items"], what="its end")
    expect(page.locator(".live")).to_be_visible()
    held[0].continue_()
    expect(page.locator("table", has_text="Outcome")).to_contain_text("complete")
    expect(page.locator(".live")).to_be_hidden()
    site.ask("DELETE", f"/sources/{source}", params={"delete_mail": "true"})
    del site.sources["Soon over"]


def test_several_files_are_dropped_and_come_in(page: Page, site: Site, tmp_path: Path) -> None:
    box = b"".join(
        b"From bo@partner.example Mon Jun  1 10:00:00 2026\n" + one.as_bytes() + b"\n" for one in _few(700, "Dropped mbox")
    )
    (tmp_path / "old mail.mbox").write_bytes(box)
    (tmp_path / "single.eml").write_bytes(mail(710, "Dropped eml").as_bytes(policy=SMTP))
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as zipped:
        for number, one in enumerate(_few(720, "Dropped zip")):
            zipped.writestr(f"folder/{number}.eml", one.as_bytes(policy=SMTP))
    page.goto("/sources")
    page.get_by_label("Import into mailbox").fill("old@lanternworks.example")
    _drop(page, [tmp_path / name for name in ("old mail.mbox", "single.eml", "more.zip")])
    expect(page.locator(".upload")).to_have_count(3)
    expect(page).to_have_url(re.compile(r"/sources/[0-9a-f-]{36}$"))
    expect(page.locator("table", has_text="Outcome")).to_contain_text("complete")
    expect(page.locator("details", has_text="old@lanternworks.example").first).to_contain_text("old mail")
    boxes = {one["address"]: one["id"] for one in site.ask("GET", "/mailboxes")["items"]}
    wanted = {"mailbox_id": boxes["old@lanternworks.example"], "limit": 50}
    found = site.ask("GET", "/messages", params=wanted)["items"]
    assert sorted(one["subject"] for one in found) == sorted(
        [*(f"Dropped mbox {n}" for n in range(3)), "Dropped eml", *(f"Dropped zip {n}" for n in range(3))]
    )


def test_a_broken_connection_goes_on_where_it_broke(page: Page, site: Site, tmp_path: Path) -> None:
    content = mail(740, "Resumed", text="line\n" * 2_000_000).as_bytes(policy=SMTP)
    (tmp_path / "large.eml").write_bytes(content)
    tries = []

    def break_the_second(route: Route) -> None:
        tries.append(route.request.headers["upload-offset"])
        route.abort() if len(tries) == 2 else route.continue_()

    page.route(
        "**/api/v1/uploads/*", lambda route: break_the_second(route) if route.request.method == "PATCH" else route.continue_()
    )
    page.goto("/sources")
    page.get_by_label("Import into mailbox").fill("resumed@lanternworks.example")
    page.get_by_label("Mail files").set_input_files(tmp_path / "large.eml")
    expect(page).to_have_url(re.compile(r"/sources/[0-9a-f-]{36}$"))
    assert len(tries) >= 3
    assert tries[1] == tries[2], "the piece that broke is sent again, and no other"


def _drop(page: Page, files: list[Path]) -> None:
    """As the browser itself does when somebody lets go of files that came from elsewhere."""
    target = page.locator("#drop")
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    browser = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver"):
        browser.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})
    expect(target).to_have_class(re.compile("over"))
    browser.send("Input.dispatchDragEvent", {"type": "drop", **place, "data": data})


def _few(number: int, subject: str) -> list:  # type: ignore[type-arg]
    return [mail(number + n, f"{subject} {n}") for n in range(3)]


def test_a_certificate_is_taken_from_a_file_of_the_reader(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    page.goto("/sources/add/imap")
    page.locator("input[type=file][data-into=f-ca]").set_input_files(file)
    expect(page.locator("#f-ca")).to_have_value(file.read_text())
    expect(page.locator("[name='setting.ca_file']")).to_have_count(0)
