"""From the spool into the archive."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from sqlalchemy import Engine

from archiver.db.engine import make_engine
from archiver.journal.activity import read_activity
from archiver.journal.envelope import JournalEnvelope
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import load_origin
from connectors.base import Batch, RawMessage
from tests.integration.journal.conftest import JournalWorld
from tests.support.journal_reports import LINES, ORIGINAL, report
from tests.support.waiting import eventually

NOW = datetime.now(UTC).replace(microsecond=0)
ENVELOPE = JournalEnvelope(NOW, "192.0.2.1", "", ("journal@archive.example",))
EVERYBODY = ["bcc:carol@example.org", "cc:outside@elsewhere.example", "list:staff@example.org", "to:bob@example.org"]


def test_a_report_becomes_the_mail_it_carries_in_the_mailboxes_it_belongs_to(world: JournalWorld) -> None:
    world.receive(report(), ENVELOPE)
    assert world.deliver() == 1
    assert world.messages() == [ORIGINAL]
    assert world.copies() == {
        "alice@example.org": [("Figures", EVERYBODY)],
        "bob@example.org": [("Figures", ["list:staff@example.org", "to:bob@example.org"])],
        "carol@example.org": [("Figures", ["bcc:carol@example.org"])],
    }
    assert world.spool.waiting() == []
    (kind, name, status, last) = world.rows("SELECT kind, name, status, last_finished_at FROM ingestion_sources")[0]
    assert (kind, name, status, last) == ("journal", "Journal", "imported", NOW)


def test_delivered_twice_it_is_there_once_and_a_second_report_adds_its_recipients(world: JournalWorld) -> None:
    """A crash after the commit and before the file is removed; then Exchange's next report about the same mail."""
    world.receive(report(), ENVELOPE)
    world.deliver()
    world.receive(report(), replace(ENVELOPE, client="192.0.2.2"))
    world.receive(report(lines=LINES + "Bcc: dan@example.org\r\n"), ENVELOPE)
    world.deliver()
    assert world.messages() == [ORIGINAL]
    found = world.copies()
    assert found["alice@example.org"] == [
        ("Figures", sorted([*EVERYBODY, "bcc:dan@example.org"])),
        ("Figures", EVERYBODY),
    ]
    assert found["bob@example.org"] == [("Figures", ["list:staff@example.org", "to:bob@example.org"])]
    assert found["dan@example.org"] == [("Figures", ["bcc:dan@example.org"])]


def test_a_malformed_report_is_archived_as_it_came(world: JournalWorld) -> None:
    broken = [report(is_closed=False), report(lines="?\r\n"), report()[:250], b"X-MS-Journal-Report:\r\n", b"", b"\xff\0\r"]
    for raw in broken:
        world.receive(raw, ENVELOPE)
    world.deliver()
    assert sorted(world.messages()) == sorted(broken)
    assert set(world.copies()) == {"unassigned"}


def test_a_report_is_left_alone_unless_the_administrator_expects_reports(world: JournalWorld) -> None:
    """Else a stranger could have their own text archived as a mail of somebody else."""
    world.delivery.unwraps = False
    world.receive(report(), ENVELOPE)
    world.deliver()
    assert world.messages() == [report()]
    assert set(world.copies()) == {"unassigned"}


def test_a_large_report_is_taken_apart_in_a_file(world: JournalWorld) -> None:
    large = ORIGINAL + b"x" * 99 + b"\r\n" + b"0123456789abcdef\r\n" * 700_000
    world.spool.append_stream(ENVELOPE, iter([report(large)]))
    world.deliver()
    assert world.messages() == [large]
    assert len(world.copies()) == 3


def test_an_outage_of_postgres_delays_and_loses_nothing(world: JournalWorld) -> None:
    broken = make_engine("postgresql://nobody@127.0.0.1:1/none", "test")
    good, world.delivery.engine = world.delivery.engine, broken
    world.delivery.ingest._engine = broken
    thread = threading.Thread(target=world.delivery.run)
    thread.start()
    try:
        for number in range(5):
            world.receive(report(ORIGINAL + b"%d\r\n" % number), ENVELOPE)
        assert world.spool.backlog().files
        world.delivery.engine = world.delivery.ingest._engine = good
        eventually(lambda: not world.spool.waiting(), what="the delivery")
    finally:
        world.stopping.set()
        thread.join()
        broken.dispose()
    assert sorted(world.messages()) == sorted(ORIGINAL + b"%d\r\n" % number for number in range(5))


def test_a_removed_source_is_followed_by_a_new_one(world: JournalWorld) -> None:
    world.receive(report(), ENVELOPE)
    world.deliver()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ingestion_sources SET removed_at = now()")
    world.delivery._source_id = None
    world.delivery._origins.clear()
    world.receive(report(ORIGINAL + b"later\r\n"), ENVELOPE)
    world.deliver()
    assert len(world.rows("SELECT 1 FROM ingestion_sources WHERE kind = 'journal'")) == 2


def test_recorded_recipients_survive_a_rebuild(
    world: JournalWorld, empty_database_url: str, database_url: str, tmp_path: Path
) -> None:
    world.receive(report(), ENVELOPE)
    world.deliver()
    before = world.copies()
    world.archive.close()
    with psycopg.connect(empty_database_url, autocommit=True):
        pass
    from archiver.db import schema

    other: Engine = make_engine(empty_database_url, "test")
    schema.migrate(other)
    archive = open_archive(world.settings, other)
    try:
        rebuild(other, archive)
        rebuilt = JournalWorld(world.settings, other, archive)
        assert rebuilt.copies() == before
    finally:
        archive.close()
        other.dispose()


def test_the_copy_in_a_mailbox_is_a_variant_of_the_journalled_one(world: JournalWorld) -> None:
    """So that searches and conversations show the mail once."""
    world.receive(b"Received: from mail.example.org\r\n" + ORIGINAL, ENVELOPE)
    world.deliver()
    (mailbox_id,) = world.rows("SELECT id FROM mailboxes WHERE address = 'alice@example.org'")[0]
    with world.engine.connect() as connection:
        origin = load_origin(connection, mailbox_id)
    trace = (
        b"Return-Path: <alice@example.org>\r\nDelivered-To: staff@example.org\r\nReceived: by imap.example.org;\r\n\tdate\r\n"
    )
    fetched = RawMessage("INBOX\u241f1\u241f1", data=trace + ORIGINAL, folder="INBOX")
    world.delivery.ingest.store_batch(origin, Batch(messages=(fetched,)))
    assert world.rows("SELECT count(*), count(DISTINCT canonical_sha256) FROM messages") == [(2, 1)]


def test_activity_of_the_last_hour(world: JournalWorld) -> None:
    with world.engine.connect() as connection:
        assert read_activity(connection, world.settings.archiver_data, NOW) is None
    for number in range(3):
        world.receive(ORIGINAL + b"%d" % number, ENVELOPE)
    world.deliver()
    world.receive(b"waiting", ENVELOPE)
    with world.engine.connect() as connection:
        found = read_activity(connection, world.settings.archiver_data, NOW)
    assert found is not None
    assert (found.last_message_at, found.last_hour, found.last_minute, found.backlog.files) == (NOW, 3, 3, 1)
