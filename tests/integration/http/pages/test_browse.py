"""Leafing through mailboxes: by right, by date, in both directions, through every folder, also with very many of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from archiver.db.tables import uuid7
from tests.integration.http.conftest import Company

_ADD_MAILBOX = "INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, :a)"
_ROW = re.compile(r'class="hit">.*?href="/messages/([0-9a-f-]{36})"', re.DOTALL)


def page(company: Company, who: str, path: str, **params: Any) -> Any:
    with company.client(who) as client:
        return client.get(f"{company.url}{path}", params=params or None)


def test_people_see_their_own_mailboxes_only(company: Company) -> None:
    alice = company.mailboxes["alice"]
    assert "alice@example.org" in page(company, "alice", "/browse").text
    for who in ("bob", "admin", "nobody"):
        assert "alice@example.org" not in page(company, who, "/browse").text
        for path in (f"/browse/{alice}", f"/browse/{alice}/folders"):
            answer = page(company, who, path)
            assert answer.status_code == 404
            assert "secret-folder" not in answer.text
    assert "alices-secret-folder" in page(company, "carol", f"/browse/{alice}").text
    assert page(company, "auditor", f"/browse/{alice}", folder="alices-secret-folder").text.count('class="hit"') == 2
    assert page(company, "alice", "/browse", find="nowhere").text.count("/browse/") == 0


@pytest.mark.parametrize("until", ["2024", "2024-13", "0000-01", "9999-12", "x-y", "2024-1-1"])
def test_a_month_that_is_none_is_named(company: Company, until: str) -> None:
    answer = page(company, "alice", f"/browse/{company.mailboxes['alice']}", until=until)
    assert answer.status_code == 400
    assert "month" in answer.text
    assert page(company, "alice", f"/browse/{company.mailboxes['alice']}", below="nonsense").status_code == 400


def test_by_month(company: Company) -> None:
    alice = f"/browse/{company.mailboxes['alice']}"
    assert page(company, "alice", alice, until="2024-02").text.count('class="hit"') == 0
    assert page(company, "alice", alice, until="2024-03").text.count('class="hit"') == 2


def test_every_message_once_in_both_directions(company: Company) -> None:
    """120 messages of one moment, and of many."""
    mailbox = uuid7()
    company.act(
        "INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, 'many@example.org')", m=mailbox, s=company.source
    )
    with company.engine.begin() as connection:
        connection.execute(
            text("""
                WITH made AS (INSERT INTO messages (id, sha256, canonical_sha256, size_bytes, sort_at, date_origin)
                    SELECT gen_random_uuid(), sha256(convert_to(n::text, 'UTF8')), sha256(convert_to('c' || n, 'UTF8')), 1,
                        timestamptz '2023-01-01' + (n / 40) * interval '20 days', 'none'
                    FROM generate_series(1, 120) AS n RETURNING id)
                INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder)
                SELECT gen_random_uuid(), id, :m, id::text, 'INBOX' FROM made"""),
            {"m": mailbox},
        )
    seen: list[str] = []
    back: list[str] = []
    path: str | None = f"/browse/{mailbox}?folder=INBOX"
    last = path
    while path and len(seen) < 1000 and len(back) < 1000:
        answer = page(company, "auditor", path)
        seen += _ROW.findall(answer.text)
        last, path = path, _way(answer.text, "next")
    assert len(seen) == len(set(seen)) == 120
    path = last
    while path and len(seen) < 1000 and len(back) < 1000:
        answer = page(company, "auditor", path)
        back = _ROW.findall(answer.text) + back
        path = _way(answer.text, "prev")
    assert back[: len(seen)] == seen
    company.act("DELETE FROM messages WHERE id IN (SELECT message_id FROM message_copies WHERE mailbox_id = :m)", m=mailbox)
    company.act("DELETE FROM message_copies WHERE mailbox_id = :m", m=mailbox)


def _way(html: str, rel: str) -> str | None:
    found = re.search(rf'rel="{rel}" href="([^"]+)"', html)
    return found[1].replace("&amp;", "&") if found else None


def test_a_hundred_thousand_folders(company: Company) -> None:
    """A page shows the first of a level, the way to a folder at its end, and finds one by name."""
    mailbox, message = uuid7(), company.messages["alice"]
    company.act(
        "INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, 'wide@example.org')", m=mailbox, s=company.source
    )
    company.act(
        """INSERT INTO message_copies (id, message_id, mailbox_id, provider_key, folder)
        SELECT gen_random_uuid(), :message, :m, n::text, 'Customers/' || lpad(n::text, 6, '0') || '/Orders & <b>'
        FROM generate_series(1, 100000) AS n""",
        m=mailbox,
        message=message,
    )
    first = page(company, "auditor", f"/browse/{mailbox}", folder="Customers/099999/Orders & <b>")
    assert first.text.count('class="node"') < 210
    assert "100,000 folders" in first.text
    assert "Orders &amp; &lt;b&gt;" in first.text
    assert first.text.count('class="hit"') == 1
    assert len(first.content) < 200_000
    level = page(company, "auditor", f"/browse/{mailbox}/folders", under="Customers", after="099990").text
    assert re.findall(r">(\d{6})<", level) == [f"{number:06}" for number in range(99_991, 100_001)]
    found = page(company, "auditor", f"/browse/{mailbox}", find="077777").text
    assert "Customers/077777/Orders" in found
    company.act("DELETE FROM message_copies WHERE mailbox_id = :m", m=mailbox)
