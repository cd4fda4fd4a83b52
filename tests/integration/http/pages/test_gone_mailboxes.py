"""Mailboxes that their source stopped listing: the page, the API and the figures say so."""

from __future__ import annotations

import httpx2

from archiver.sync import cycle, sessions
from archiver.sync.sessions import ListedMailbox
from tests.integration.http.conftest import Company
from tests.support.waiting import DEADLINE_SECONDS


def test_a_mailbox_that_is_gone_is_shown(company: Company) -> None:
    with company.engine.begin() as connection:
        session = sessions.claim(connection, company.source, is_initial_import=False)
        listed = [ListedMailbox("alice@example.org", None, None)]
        sessions.publish(connection, session, listed, None, is_whole=True, left_out={"mailboxes_out: x": 2})
        sessions.cancel(connection, session.id)
        session_done = {"id": session.id}
    company.act("UPDATE sync_sessions SET completed_mailboxes = total_mailboxes WHERE id = :id", **session_done)
    with company.engine.begin() as connection:
        assert cycle.finish(connection, session.id)

    with company.client("auditor") as client:
        boxes = client.get(f"/sources/{company.source}/mailboxes").json()["items"]
        assert {box["address"]: box["gone_at"] is not None for box in boxes} == {
            "alice@example.org": False,
            "bob@example.org": True,
        }
        run = client.get(f"/sources/{company.source}/runs").json()["items"][0]
        assert (run["gone_mailboxes"], run["gone_addresses"]) == (1, ["bob@example.org"])
        with httpx2.Client(base_url=company.url, cookies=client.cookies, timeout=DEADLINE_SECONDS, verify=False) as people:
            page = people.get(f"/sources/{company.source}", headers={"Accept-Language": "en"})
    assert page.status_code == 200
    assert "not listed by the source since" in page.text
    assert "1 mailbox no longer listed: bob@example.org" in " ".join(page.text.split())
    assert "The source listed 1 mailbox on" in page.text
    assert "2 excluded (mailboxes_out: x)" in page.text
