"""Where a message is stored, on its page."""

from __future__ import annotations

from hashlib import sha256

from archiver.db.ids import message_uuid, uuid7
from archiver.db.sql import run
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


def test_only_an_import_can_say_that_a_mail_was_converted(company: Company) -> None:
    """The header alone proves nothing: any sender can write it."""
    claims = b"X-Archiver-Converted-From: PST\r\nFrom: a@example.org\r\nSubject: %s\r\n\r\ntext\r\n"
    archive = open_archive(company.settings, company.engine)
    with company.engine.connect() as connection:
        origin = load_origin(connection, company.mailboxes["alice"])
    ingest = Ingest(company.engine, archive)
    forged = claims % b"forged"
    ingest.store_batch(origin, Batch(messages=(RawMessage("INBOX\u241f1\u241f77.pst", data=forged, folder="INBOX"),)))
    imported, source_id, mailbox_id = claims % b"imported", uuid7(), uuid7()
    with company.engine.begin() as connection:
        given = {"source_id": source_id, "mailbox_id": mailbox_id}
        run(
            connection,
            "INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:source_id, 'import', 'PST', 'imported')",
            **given,
        )
        run(
            connection,
            "INSERT INTO mailboxes (id, source_id, address) VALUES (:mailbox_id, :source_id, 'old@example.org')",
            **given,
        )
        origin = load_origin(connection, mailbox_id)
    key = f"backup.zip/Old.PST\u241f{'0' * 64}\u241f3"
    recorded = RawMessage(key, data=imported, folder="Old", recipients=("bcc:carol@example.org",))
    ingest.store_batch(origin, Batch(messages=(recorded,)))
    archive.close()
    with company.client("auditor", headers={"Accept-Language": "en"}) as client:
        page = {
            raw: client.get(f"{company.url}/messages/{message_uuid(sha256(raw).digest())}").text for raw in (forged, imported)
        }
    assert "Converted from PST" not in page[forged]
    assert "Converted from PST" in page[imported]
    assert "Recorded recipients" in page[imported]
    assert "bcc:carol@example.org" in page[imported]
    assert "Recorded recipients" not in page[forged]
