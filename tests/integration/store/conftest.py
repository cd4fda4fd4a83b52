"""An archive with a real Postgres, and one to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.dictionaries import Trainer
from archiver.store.files import Files
from archiver.store.journal import Origin
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.open import DatabasePlaces
from archiver.sync.ingest.store_batch import Ingest, load_origin

SOURCE, MAILBOX, SECOND = (UUID(f"01900000-0000-7000-8000-00000000000{number}") for number in (1, 2, 3))


@dataclass
class World:
    engine: Engine
    folder: Path
    keyring: Keyring = field(default_factory=lambda: Keyring({"test": b"k" * 32}))
    limit_bytes: int = 256 << 20
    opened: list[Archive] = field(default_factory=list)

    def open(self, files: Files | None = None) -> Ingest:
        keys, trainer, places = PackKeys(self.keyring), Trainer(), DatabasePlaces(self.engine)
        backend = LocalPacks(self.folder, keys, trainer, places.known_end, files=files, limit_bytes=self.limit_bytes)
        self.archive = Archive(backend, keys, trainer, places)
        self.opened.append(self.archive)
        return Ingest(self.engine, self.archive)

    def close(self) -> None:
        for archive in self.opened:
            archive.close()
        self.opened.clear()
        self.engine.dispose()

    def origin(self, mailbox_id: UUID = MAILBOX) -> Origin:
        with self.engine.connect() as connection:
            return load_origin(connection, mailbox_id)

    def rows(self, statement: str, **parameters: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement), parameters).all())

    def value(self, statement: str, **parameters: Any) -> Any:
        return self.rows(statement, **parameters)[0][0]

    def refuse(self, table: str, event: str = "INSERT") -> None:
        """From now on, Postgres refuses this: a transaction that comes so far is rolled back."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$"
            )
            connection.exec_driver_sql(f"CREATE TRIGGER refuse BEFORE {event} ON {table} EXECUTE FUNCTION refuse()")

    def allow(self, table: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TRIGGER refuse ON {table}")

    def content(self) -> dict[str, list[Any]]:
        """Everything that must be the same in two archives of the same mail, whatever happened on the way."""
        return {name: self.rows(statement) for name, statement in _CONTENT.items()}


_CONTENT = {
    "sources": "SELECT id, kind, name FROM ingestion_sources ORDER BY id",
    "mailboxes": "SELECT id, source_id, address FROM mailboxes ORDER BY id",
    "messages": """SELECT id, sha256, canonical_sha256, internet_message_id, in_reply_to, reference_ids, sent_at, received_at,
        sort_at, date_origin, sender, sender_name, subject, size_bytes, has_attachments, defects FROM messages ORDER BY id""",
    "copies": """SELECT mailbox_id, provider_key, message_id, folder, flags, labels, received_at, gone_at IS NOT NULL,
        deleted_at IS NOT NULL, deleted_reason FROM message_copies ORDER BY mailbox_id, provider_key""",
    "participants": "SELECT message_id, position, role, address, name FROM participants ORDER BY message_id, position",
    "parts": "SELECT message_id, part_sha256 FROM message_parts ORDER BY message_id, part_sha256",
    "objects": "SELECT sha256, kind FROM objects WHERE kind <> 'dictionary' ORDER BY sha256, kind",
}


def set_up(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO ingestion_sources (id, kind, name) VALUES (:i, 'imap', 'work')"), {"i": SOURCE})
        for mailbox_id, address in ((MAILBOX, "alice@example.org"), (SECOND, "bob@example.org")):
            connection.execute(
                text("INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, :a)"),
                {"m": mailbox_id, "s": SOURCE, "a": address},
            )


@pytest.fixture
def world(engine: Engine, tmp_path: Path) -> Iterator[World]:
    set_up(engine)
    made = World(engine, tmp_path / "packs")
    yield made
    made.close()


@pytest.fixture
def new_world(postgres: Any, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """More worlds, each with a database of its own; `empty`: without a source; `copy_of`: as that of another is now."""
    from tests.conftest import _create_database

    made: list[World] = []

    def make(*, empty: bool = False, folder: Path | None = None, copy_of: World | None = None) -> World:
        name = f"t_{uuid7().hex}"
        if copy_of is not None:
            copy_of.engine.dispose()  # a database that is copied must not be in use
            empty = True
        _create_database(postgres, name, str(copy_of.engine.url.database) if copy_of else "template")
        engine = make_engine(postgres.url(name), "test")
        if not empty:
            set_up(engine)
        made.append(World(engine, folder or tmp_path / name))
        return made[-1]

    yield make
    for world in made:
        world.close()
