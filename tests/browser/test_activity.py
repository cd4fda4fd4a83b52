"""What runs and what failed; the figures."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Site


def test_parts_queues_and_workers_are_seen(page: Page) -> None:
    page.goto("/activity")
    expect(page.get_by_role("row", name=re.compile("^postgres"))).to_contain_text("ready")
    for queue in ("ingestion", "indexing"):
        row = page.get_by_role("row", name=re.compile(f"^{queue}"))
        expect(row.locator("td").first).to_have_text("1")


def test_dead_letters_are_tried_again_or_given_up(page: Page, site: Site) -> None:
    box, poison = "user2@example.org", {"poison": ["INBOX/0", "INBOX/1"]}
    source = site.add_source(
        "Broken", mailboxes=2, mailboxes_in=[box], messages_per_mailbox=4, folders=["INBOX"], seed=91, trouble=poison
    )
    site.wait_until_searchable()
    page.goto("/activity")
    rows = page.locator("tr", has_text=box)
    expect(rows).to_have_count(2)
    first = rows.filter(has_text="INBOX/0")
    first.get_by_role("button", name="Retry now").click()
    expect(page).to_have_url(re.compile("/activity"))
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("tr", has_text=box).filter(has_text="INBOX/1").get_by_role("button", name="Discard").click()
    expect(page.locator("tr", has_text=box).filter(has_text="INBOX/1")).to_have_count(0)
    page.get_by_role("link", name="Show discarded").click()
    expect(page.locator("tr", has_text=box).filter(has_text="INBOX/1")).to_have_count(1)
    site.ask("DELETE", f"/sources/{source}", params={"delete_mail": "true"})
    del site.sources["Broken"]


def test_the_dashboard_has_a_chart_and_a_table_that_says_the_same(page: Page, site: Site) -> None:
    page.goto("/dashboard")
    messages = int(re.sub(r"\D", "", page.locator(".figure b").first.inner_text()))
    assert messages > 300
    chart = page.get_by_role("group", name="Messages over time")
    expect(chart).to_be_visible()
    page.get_by_text("Show as table").click()
    numbers = page.locator("details tbody tr td:nth-child(2)").all_inner_texts()
    assert len(numbers) == chart.get_by_role("link").count()
    assert sum(int(re.sub(r"\D", "", one)) for one in numbers) == messages
    expect(page.locator("section", has_text="Top senders")).to_contain_text("bo@partner.example")
