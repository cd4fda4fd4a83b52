"""Every example of docs/search.md is a query that works, and finds something in mail that was made for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import meilisearch
import pytest
from sqlalchemy import Engine

from tests.integration.search.mail_world import MailWorld, Place, mail, make_world

DOCUMENT = Path(__file__).parents[3] / "docs" / "search.md"
NOW = datetime(2024, 5, 20, 12, tzinfo=UTC)
NOT_IN_THE_MAIL = {"thread:01900000-0000-7000-8000-000000000001", "larger:5M"}
EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def examples() -> list[str]:
    (block,) = re.findall(r"```query\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return [line for line in block.splitlines() if line.strip()]


@pytest.fixture
def world(engine: Engine, client: meilisearch.Client) -> Iterator[MailWorld]:
    world = make_world(engine, client)
    world.mailbox("alice@corp.com", "work")
    alice = "alice@corp.com"
    pdf, png = ("invoice 7.pdf", "application/pdf"), ("map.png", "image/png")
    head = "Message-ID: <1@corp.com>\r\nList-Id: <dev.lists.corp.com>\r\nCc: bob@example.org\r\n"
    invoice = mail("Invoice INV-2024-0017", "The total amount is due", files=[pdf, png], more=head, at=NOW)
    offer = mail("Final offer", "Berlin contract", files=[pdf], at=datetime(2024, 5, 7, tzinfo=UTC))
    contract = mail("Contract", "An offer for Berlin", "Bob <bob@lab.corp.com>", at=datetime(2022, 5, 7, tzinfo=UTC))
    street = mail("Straße", "会議は明日", "Al <al.b@corp.com>", "carol@example.org")
    world.add(
        [
            (invoice, [Place(alice, labels=("Work",))]),
            (offer, [Place(alice, "Archive/2024")]),
            (contract, [Place("bob@example.org", "Archive/2022")]),
            (street, [Place(alice, "Trash")]),
        ]
    )
    yield world
    world.index.delete()


def test_every_example_finds_something(world: MailWorld) -> None:
    assert len(examples()) > 40
    for query in examples():
        results = world.search.search(query, now=NOW)
        if query not in NOT_IN_THE_MAIL and query != EMPTY:
            assert 0 < results.total < len(world.kept), query
        assert results.total == len(list(world.search.message_ids(query, now=NOW))), query
