"""Everything between a mail server and the archive, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from archiver.config import Settings, load_settings
from archiver.db.counters import Counters
from archiver.journal.assignment import OwnDomains
from archiver.journal.delivery import JournalDelivery
from archiver.journal.envelope import JournalEnvelope
from archiver.journal.process import open_spool
from archiver.journal.server import open_server
from archiver.parsing.readers import process_readers
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest

KEY = Keyring.generate().serialise()


@dataclass
class JournalWorld:
    settings: Settings
    engine: Engine
    archive: Archive
    counters: Counters = field(default_factory=Counters)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.spool = open_spool(self.settings)
        self.spool.folder.mkdir(parents=True, exist_ok=True)
        self.delivery = JournalDelivery(
            self.spool,
            self.engine,
            Ingest(self.engine, self.archive),
            process_readers(),
            OwnDomains.of(self.settings.journal_domains, self.settings.journal_addresses),
            self.settings.journal_reports,
            self.settings.archiver_data / "scratch" / "journal",
            self.counters,
            self.stopping,
        )

    def receive(self, raw: bytes, envelope: JournalEnvelope) -> None:
        self.spool.append(envelope, raw)

    def deliver(self) -> int:
        done = 0
        while found := self.delivery.deliver():
            done += found
        return done

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), values)]

    def copies(self) -> dict[str, list[tuple[str, list[str]]]]:
        """By mailbox: subject and recorded recipients."""
        found: dict[str, list[tuple[str, list[str]]]] = {}
        statement = """SELECT b.address, m.subject, c.recipients FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id
            JOIN messages m ON m.id = c.message_id ORDER BY b.address, m.subject, c.recipients"""
        for address, subject, recipients in self.rows(statement):
            found.setdefault(address, []).append((subject, recipients))
        return found

    def messages(self) -> list[bytes]:
        return [self.archive.read(bytes(sha256)) for (sha256,) in self.rows("SELECT sha256 FROM messages ORDER BY id")]

    def listen(self) -> tuple[Any, int]:
        server = open_server(self.settings.model_copy(update={"journal_port": None}), self.spool, self.counters)
        port = server.listen("127.0.0.1", 0)
        server.start()
        return server, port


def journal_settings(tmp_path: Path, database_url: str, **changes: str) -> dict[str, str]:
    return {
        "ARCHIVER_DATA": str(tmp_path / "data"),
        "DATABASE_URL": database_url,
        "REDIS_URL": "redis://127.0.0.1:1",
        "MEILI_HOST": "http://127.0.0.1:1",
        "MEILI_MASTER_KEY": "not used here",
        "STORAGE_ENCRYPTION_KEY": KEY,
        "JOURNAL_PORT": "2525",
        "JOURNAL_DOMAINS": "example.org",
        "JOURNAL_ADDRESSES": "journal@archive.example",
        "JOURNAL_REPORTS": "true",
        "DISK_MIN_FREE_BYTES": "0",
        **changes,
    }


@pytest.fixture
def world(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[JournalWorld]:
    settings = load_settings(journal_settings(tmp_path, database_url), Path("none"))
    archive = open_archive(settings, engine)
    yield JournalWorld(settings, engine, archive)
    archive.close()
