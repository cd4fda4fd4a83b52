"""Saved searches: what is new in them since the last visit, and notices through the user's own channels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from archiver.access import users
from archiver.alerts import search_notices
from archiver.alerts.channels import AlertChannel, ChannelWishes
from archiver.db.tables import uuid7
from archiver.search import news, saved
from archiver.search.service import open_search
from tests.integration.http.conftest import Company

NEW_YEAR = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def nothing_saved(company: Company) -> Iterator[None]:
    yield
    company.act("UPDATE users SET settings = settings - 'searches'")
    company.act("DELETE FROM alert_deliveries")


def page(company: Company, who: str, query: str) -> str:
    with company.client(who) as client:
        return str(client.get(f"{company.url}/", params={"q": query}).text)


def save(company: Company, who: str, query: str, do: str = "save") -> int:
    with company.client(who) as client:
        return int(client.post(f"{company.url}/saved", data={"query": query, "do": do}).status_code)


def look_back(company: Company, who: str, **days: int) -> None:
    """As if the search had been saved, opened and told about so many days ago."""
    with company.engine.begin() as connection:
        user = users.load(connection, company.people[who].id)
        moved = [
            {**one, **{key: (datetime.now(UTC) - timedelta(days=ago)).isoformat() for key, ago in days.items()}}
            for one in user.settings["searches"]
        ]
        users.change_settings(connection, user, searches=moved)


def test_new_mail_is_counted_until_it_was_looked_at(company: Company) -> None:
    assert save(company, "alice", "subject:for") == 303
    assert "new-count" not in page(company, "alice", "")
    look_back(company, "alice", opened_at=2, new_since=3)
    assert 'class="new-count" title="2 new messages since your last visit"' in page(company, "alice", "")
    opened = page(company, "alice", "subject:for")
    assert opened.count('class="new-dot"') == 1, "one row: both are of one conversation"
    assert "new-count" not in page(company, "alice", "")
    assert 'class="new-dot"' in page(company, "alice", "subject:for"), "a reload within the visit"
    assert save(company, "alice", "subject:for", "forget") == 303
    assert "subject:for" not in page(company, "alice", "").partition('id="list"')[0].partition('id="facets"')[2]


def test_what_others_may_read_is_not_new_to_me(company: Company) -> None:
    save(company, "bob", "subject:alice")
    look_back(company, "bob", opened_at=2, new_since=3)
    assert "new-count" not in page(company, "bob", "")


def test_first_id_is_before_all_ids_of_its_time() -> None:
    before = datetime.now(UTC)
    made = uuid7()
    assert news.first_id(before - timedelta(milliseconds=1)) < made < news.first_id(datetime.now(UTC) + timedelta(seconds=1))


def test_a_search_that_no_longer_works_is_passed_over(company: Company) -> None:
    save(company, "alice", "mailbox:gone@example.org")
    look_back(company, "alice", opened_at=2)
    assert "alice@example.org" in page(company, "alice", "")


def test_notices_go_to_the_users_own_channels_once(company: Company) -> None:
    save(company, "auditor", "subject:for")
    assert save(company, "auditor", "not saved", "tell") == 404
    assert save(company, "auditor", "subject:for", "tell") == 303
    look_back(company, "auditor", told_until=2)
    auditor, alice = company.people["auditor"].id, company.people["alice"].id
    channels = [
        AlertChannel(uuid7(), name, "x:", ChannelWishes(), owner) for name, owner in (("mine", auditor), ("hers", alice))
    ]
    search = open_search(company.settings, company.engine)

    def announce(after: timedelta) -> int:
        with company.engine.begin() as connection:
            return search_notices.announce_new(connection, search, channels, datetime.now(UTC) + after)

    assert announce(timedelta(minutes=5)) == 1
    assert announce(timedelta(minutes=6)) == 0, "told once"
    rows: list[Any] = []
    with company.engine.connect() as connection:
        rows = list(connection.execute(text("SELECT channel_id, details FROM alert_deliveries")))
        (kept,) = saved.of(users.load(connection, auditor))
    assert [row.channel_id for row in rows] == [channels[0].id]
    assert rows[0].details["text"].startswith("3 new messages in your saved search: subject:for")
    assert kept.notify
    save(company, "auditor", "subject:for", "be_quiet")
    look_back(company, "auditor", told_until=2)
    assert announce(timedelta(minutes=9)) == 0
