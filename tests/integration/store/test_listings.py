"""What a full listing of a folder says about the copies that we hold of it."""

from __future__ import annotations

import pytest

from archiver.sync import ledger
from archiver.sync.ingest.provider_keys import VERSION_MARK, FittedKeys
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import MAILBOX, World
from tests.support.store_world import mail


@pytest.mark.parametrize("few", [10_000, 1], ids=["as a parameter", "in a table"])
def test_what_is_not_listed_is_gone_and_what_is_listed_again_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(ledger, "_FEW_KEYS", few)
    ingest = world.open()
    messages = [RawMessage(f"INBOX␟7␟{number}", mail(number), folder="INBOX") for number in range(1, 6)]
    elsewhere = RawMessage("Sent␟7␟1", mail(99), folder="Sent")
    edited = RawMessage("INBOX␟7␟2", mail(200), folder="INBOX")  # other bytes under a known key
    long = RawMessage("INBOX␟" + "x" * 3000, mail(300), folder="INBOX")
    ingest.store_batch(world.origin(), Batch(messages=(*messages, elsewhere, long)))
    ingest.store_batch(world.origin(), Batch(messages=(edited,), changes=(CopyChange(ChangeKind.GONE, "INBOX␟7␟4"),)))
    listed = FittedKeys(["INBOX␟7␟1", "INBOX␟7␟2", "INBOX␟7␟4", "INBOX␟7␟9", long.provider_key])
    with world.engine.begin() as connection:
        found = ledger.differences(connection, MAILBOX, "INBOX", listed, VERSION_MARK)
    assert list(found.gone) == ["INBOX␟7␟3", "INBOX␟7␟5"]
    assert list(found.back) == ["INBOX␟7␟4"]
    with world.engine.begin() as connection:
        ledger.record_listings(connection, MAILBOX, [ledger.LedgerListing("INBOX", listed)])
    with world.engine.begin() as connection:
        assert ledger.gap(connection, MAILBOX) == ["INBOX␟7␟9"]
    assert world.value("SELECT listed FROM folder_listings") == 5
    with world.engine.begin() as connection:
        assert list(ledger.differences(connection, MAILBOX, "Sent", [], VERSION_MARK).gone) == ["Sent␟7␟1"]
