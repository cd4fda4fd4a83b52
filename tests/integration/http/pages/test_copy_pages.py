"""Where a message is stored, on its page."""

from __future__ import annotations

from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.integration.http.conftest import Company


def test_a_mailbox_with_two_copies_counts_once(company: Company) -> None:
    archive = open_archive(company.settings, company.engine)
    with company.engine.connect() as connection:
        origin = load_origin(connection, company.mailboxes["alice"])
    again = RawMessage("Archive:alice", data=company.raw["alice"], folder="Archive")
    Ingest(company.engine, archive).store_batch(origin, Batch(messages=(again,)))
    archive.close()
    with company.client("auditor", headers={"Accept-Language": "en"}) as client:
        twice = client.get(f"{company.url}/messages/{company.messages['alice']}").text
        both = client.get(f"{company.url}/messages/{company.messages['both']}").text
    assert "<td>Archive</td>" in twice
    assert "Stored in 1 mailbox<" in twice
    assert "Stored in 2 mailboxes<" in both
