"""Searching as a person does: typing, narrowing down, going back, selecting."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from archiver.exports.verifying import verify_export
from tests.browser.conftest import ARTEFACTS, Site


def total(page: Page) -> int:
    return int(re.sub(r"\D", "", page.locator("#total").inner_text()))


def test_results_come_while_typing_and_the_history_stays_whole(page: Page, site: Site) -> None:
    page.goto("/")
    everything = total(page)
    assert everything > 300
    page.evaluate("window.same = true")
    box = page.get_by_role("combobox", name="Search the archive")
    box.press_sequentially("quokka")
    expect(page.locator("#total")).to_have_text("1 message")
    expect(page).to_have_url(re.compile(r"\?q=quokka$"))
    expect(page.locator(".hit mark").first).to_have_text(re.compile("quokka", re.I))
    expect(page.locator(".hit")).to_contain_text("found in notes.txt")
    box.fill("endless")
    expect(page).to_have_url(re.compile(r"\?q=endless$"))
    page.go_back()  # all that was typed is one step
    expect(page).to_have_url(f"{site.url}/")
    expect(box).to_have_value("")
    expect(page.locator("#total")).to_contain_text(f"{everything:,}")
    page.go_forward()
    expect(box).to_have_value("endless")
    expect(page.locator(".hit")).to_have_count(1)
    assert page.evaluate("window.same"), "no page was loaded anew"
    page.reload()
    expect(box).to_have_value("endless")
    expect(page.locator(".hit")).to_have_count(1)


def test_suggestions_are_taken_by_key_and_by_click(page: Page) -> None:
    page.goto("/")
    box = page.get_by_role("combobox")
    box.press_sequentially("fro")
    option = page.get_by_role("option", name="from:")
    expect(option).to_be_visible()
    expect(box).to_have_attribute("aria-expanded", "true")
    box.press("ArrowDown")
    expect(option).to_have_attribute("aria-selected", "true")
    box.press("Enter")
    expect(box).to_have_value(re.compile("^from:"))
    box.press_sequentially("bo@par")
    page.get_by_role("option", name="bo@partner.example").click()
    expect(box).to_have_value(re.compile("bo@partner.example"))
    expect(page.locator(".hit .sender").first).to_contain_text("Bo Berg")
    box.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()


def test_facets_narrow_and_widen(page: Page) -> None:
    page.goto("/")
    everything = total(page)
    facets = page.locator("#facets")
    pdf = facets.locator("section", has_text="Attachment").get_by_role("link", name=re.compile("^pdf"))
    count = int(re.sub(r"\D", "", pdf.locator("span").last.inner_text()))
    pdf.click()
    expect(page.locator("#total")).to_contain_text(f"{count:,} message")
    expect(page).to_have_url(re.compile(r"q=type%3Apdf"))
    chosen = facets.locator("a[aria-current]")
    expect(chosen).to_contain_text("pdf")
    chosen.click()
    expect(page.locator("#total")).to_contain_text(f"{everything:,}")


def _time(bar: Locator) -> str:
    return f"after:{bar.get_attribute('data-from')} before:{bar.get_attribute('data-to')}"


def test_the_histogram_is_a_link_for_each_time_and_can_be_brushed(page: Page) -> None:
    page.goto("/")
    bars = page.locator(".histogram a")
    assert bars.count() >= 3
    years = [_time(bars.nth(n)) for n in range(bars.count())]
    bars.last.click()
    expect(page.get_by_role("combobox")).to_have_value(years[-1])
    expect(page).to_have_url(re.compile(years[-1][6:10]))
    expect(bars.first).to_have_attribute("aria-label", re.compile(r"^[A-Z][a-z]+ \d{4}: \d+$"))  # one year: its months
    months = sum(int(str(bars.nth(n).get_attribute("aria-label")).rpartition(" ")[2]) for n in range(bars.count()))
    expect(page.locator("#total")).to_contain_text(f"{months:,} ")
    page.go_back()
    expect(page.get_by_role("combobox")).to_have_value("")
    expect(bars.nth(2)).to_be_visible()
    first, last = bars.nth(0).bounding_box(), bars.nth(1).bounding_box()
    assert first is not None
    assert last is not None
    page.mouse.move(first["x"] + first["width"] / 2, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + last["width"] / 2, last["y"] + 10)
    page.mouse.up()
    begin, end = years[0].split()[0], years[1].split()[1]
    expect(page.get_by_role("combobox")).to_have_value(f"{begin} {end}")


def test_filters_are_chips_facets_exclude_and_all_their_values_are_there(page: Page) -> None:
    page.goto("/?q=in:Sent has:attachment")
    chips = page.locator(".filters a")
    expect(chips).to_contain_text(["in:Sent", "has:attachment"])
    before = total(page)
    chips.first.click()
    expect(page.get_by_role("combobox")).to_have_value("has:attachment")
    expect(chips).to_have_count(1)  # once the results are there
    every = total(page)
    assert every > before
    sent = page.locator("#facets section", has_text="Folder").locator("li", has_text="Sent").first
    sent.locator("a").first.click(modifiers=["Alt"])
    expect(page.get_by_role("combobox")).to_have_value("has:attachment -in:Sent")
    expect(page.locator("#total")).to_contain_text(f"{every - before:,} message")
    page.goto("/")
    page.locator("#facets section", has_text="Sender").get_by_role("link", name="Show all").click()
    values = page.locator(".facet-list li")
    assert values.count() > 20
    page.get_by_role("searchbox", name="Find a value").fill("BO@partner")
    page.get_by_role("searchbox", name="Find a value").press("Enter")
    expect(values).to_have_count(1)
    values.get_by_role("link").first.click()
    expect(page.get_by_role("combobox")).to_have_value("from:bo@partner.example")
    page.goto("/facets/nonsense")
    expect(page.get_by_role("heading")).to_have_text("Page not found")


def test_the_view_is_a_choice_that_stays(page: Page) -> None:
    page.goto("/?q=subject:conversation")
    expect(page.locator(".hit")).to_have_count(1)
    for menu, rows in (("Single messages", 30), ("Conversations", 1)):
        page.locator(".sorts details.menu summary").click()
        page.get_by_role("button", name=menu).click()
        expect(page.locator(".hit")).to_have_count(rows)
        page.reload()
        expect(page.locator(".hit")).to_have_count(rows)
    for name in ("Compact", "Comfortable"):
        page.locator(".sorts details.menu summary").click()
        page.get_by_role("button", name=name).click()
        expect(page.locator(f".hits.{name.lower()}")).to_be_visible()
    page.locator("body").press("a")
    expect(page.locator("#selected")).to_contain_text("50 selected")
    page.locator("#select-all input").check()
    expect(page.locator("#selected-count")).to_have_text("All 60 results")


def test_the_figures_of_the_dashboard_lead_to_their_mail(page: Page) -> None:
    page.goto("/dashboard")
    row = page.locator(".ranking").nth(1).locator("tbody tr").first
    counted = int(re.sub(r"\D", "", row.locator("td").first.inner_text()))
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile("q=from%3A"))
    assert total(page) == counted
    page.goto("/dashboard")
    bar = page.locator(".chart a").last
    label = bar.get_attribute("aria-label") or ""
    assert re.match(r"\d{4}-\d{2}: ", label), "by months"
    bar.click()
    expect(page.locator("#total")).to_contain_text(label.partition(": ")[2])


def test_sorting_and_paging_to_the_end(page: Page) -> None:
    page.goto("/?q=from:@partner.example")
    everything = total(page)
    seen: list[str | None] = []
    while True:
        for row in page.locator(".hit > a").all():
            seen += [row.get_attribute("data-id"), *(row.get_attribute("data-also") or "").split()]
        following = page.locator(".more a[rel=next]")
        if not following.count():
            break
        before = page.locator(".more .quiet").inner_text()
        following.click()
        expect(page.locator(".more .quiet")).not_to_have_text(before)
    assert len(seen) == len(set(seen)) == everything > 50
    page.get_by_role("link", name="Oldest").click()
    expect(page).to_have_url(re.compile("sort=oldest"))
    oldest = page.locator(f'.hit > a[data-id="{seen[-1]}"], .hit > a[data-also~="{seen[-1]}"]')
    expect(oldest).to_be_visible()
    page.goto("/?q=from:@partner.example&page=999999")
    expect(oldest).to_be_visible()


def test_a_search_is_saved_and_forgotten(page: Page) -> None:
    page.goto("/?q=subject:conversation")
    page.get_by_role("button", name="Save search").click()
    saved = page.locator("#facets section", has_text="Saved searches").get_by_role("link")
    expect(saved).to_have_text(["subject:conversation"])
    page.goto("/")
    saved.click()
    expect(page.locator("#total")).to_have_text("60 messages")
    page.get_by_role("button", name="Remove saved search").click()
    expect(saved).to_have_count(0)


def test_from_a_search_to_a_verified_export(page: Page, site: Site, tmp_path: Path) -> None:
    """Selected messages, and everything that the search finds: written by the workers, downloaded, and checked."""
    page.goto("/?q=subject:conversation")
    row = page.locator(".hit > a")
    expect(row).to_have_count(1)
    expect(row.locator(".count")).to_contain_text("60")
    page.locator(".hit input[type=checkbox]").check()
    expect(page.locator("#selected")).to_contain_text("50 selected")  # what this page has of the conversation
    ids = [row.get_attribute("data-id"), *(row.get_attribute("data-also") or "").split()]
    page.get_by_role("button", name="Export", exact=True).click()
    expect(page).to_have_url(re.compile(r"/exports$"))
    expect(page.get_by_text("50 messages, checked")).to_be_visible(timeout=120_000)
    page.screenshot(path=ARTEFACTS / "exports.png", full_page=True)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="export-001.zip").click()
    volume = tmp_path / "export-001.zip"
    waiting.value.save_as(volume)
    assert verify_export([volume]).problems == []
    with zipfile.ZipFile(volume) as zipped:
        found = {hashlib.sha256(zipped.read(name)).hexdigest() for name in zipped.namelist() if name.endswith(".eml")}
    assert found == {hashlib.sha256(site.client.get(f"/api/v1/messages/{one}/raw").content).hexdigest() for one in ids}
    page.goto("/?q=subject:conversation")
    found_by_search = total(page)
    page.get_by_role("button", name="Export all results").click()
    expect(page.get_by_text(f"{found_by_search} messages, checked")).to_be_visible(timeout=120_000)
    for _ in range(2):
        page.get_by_role("button", name="Remove").first.click()
    expect(page.get_by_text("You have no exports.")).to_be_visible()


def test_a_query_that_can_not_be_understood_is_shown_where_it_breaks(page: Page) -> None:
    page.goto("/?q=invoice")
    page.get_by_role("combobox").fill("invoice larger:soon")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("is not valid")
    expect(alert.locator("mark")).to_contain_text("soon")
    page.get_by_role("combobox").fill("nothinglikethisanywhere")
    expect(page.locator("#list h2")).to_have_text("No messages found")


def test_the_reading_pane_opens_beside_the_list(page: Page) -> None:
    page.goto("/?q=zephyr")
    page.locator(".hit > a").click()
    expect(page.locator("#reading h1")).to_have_text("Zephyr plans and pictures")
    expect(page.locator(".hit > a[aria-current]")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/\?q=zephyr$"))
    page.locator("#reading [data-back]").click()
    expect(page.locator("#reading h2")).to_have_text("No message selected")


def test_nothing_shifts_while_results_come(page: Page) -> None:
    page.goto("/")
    page.evaluate(
        """() => { window.shift = 0; new PerformanceObserver((list) => { for (const one of list.getEntries())
        if (!one.hadRecentInput) window.shift += one.value; }).observe({ type: "layout-shift", buffered: true }); }"""
    )
    page.get_by_role("combobox").press_sequentially("invoice")
    expect(page).to_have_url(re.compile("q=invoice$"))
    expect(page.locator(".hit mark").first).to_be_visible()
    assert page.evaluate("window.shift") < 0.01


def test_the_answer_of_suggestions_is_json(page: Page, site: Site) -> None:
    answer = page.request.get(f"{site.url}/suggest?q=has")
    assert any(one["text"].startswith("has:") for one in json.loads(answer.text()))
