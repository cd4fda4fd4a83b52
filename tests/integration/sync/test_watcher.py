"""Who watches which mailbox: one process each, whatever comes and goes. Nothing listens where the mailboxes are said to be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, text

from archiver.config import load_settings
from archiver.db.tables import uuid7
from archiver.secrets import create_missing_keys, credentials_keyring
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest
from archiver.sync.mailbox_leases import MailboxLeases
from tests.support.waiting import DEADLINE_SECONDS
from workers.context import WorkerContext
from workers.watcher import PushWatcher


class Process:
    """A watcher and the connection on which its leases live."""

    def __init__(self, work: WorkerContext, url: str) -> None:
        self.watcher, self.leases = PushWatcher(work, url), psycopg.connect(url)

    def choose(self) -> set[str]:
        self.watcher._update_watches(MailboxLeases(self.leases))
        return {watch.mailbox.address for watch in self.watcher._watches.values()}

    def die(self) -> None:
        self.leases.close()
        for watch in self.watcher._watches.values():
            watch.stop()


@pytest.fixture
def processes(engine: Engine, database_url: str, tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    settings = load_settings({"ARCHIVER_DATA": str(tmp_path / "data")}, Path("none"))
    create_missing_keys(settings)
    archive = open_archive(settings, engine)
    work = WorkerContext(settings, engine, Ingest(engine, archive), credentials_keyring(settings))
    made = Process(work, database_url), Process(work, database_url)
    yield made
    for process in made:
        process.die()
    for thread in threading.enumerate():
        if thread.name.startswith("watch "):
            thread.join(DEADLINE_SECONDS)
    archive.close()


@pytest.fixture(autouse=True)
def source(engine: Engine) -> None:
    source_id = uuid7()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO ingestion_sources (id, kind, name, status, settings) VALUES (:id, 'imap', 's', 'active',"
                ' \'{"watch": true, "host": "127.0.0.1", "port": 1}\')'
            ),
            {"id": source_id},
        )
        for name in "abc":
            connection.execute(
                text("INSERT INTO mailboxes (id, source_id, address) VALUES (:id, :source, :address)"),
                {"id": uuid7(), "source": source_id, "address": name},
            )


def _execute(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def test_each_mailbox_is_watched_by_one_process(processes: tuple[Process, Process], engine: Engine) -> None:
    one, other = processes
    assert one.choose() == {"a", "b", "c"}
    assert other.choose() == set()
    _execute(engine, "UPDATE mailboxes SET gone_at = now() WHERE address = 'a'")
    assert one.choose() == {"b", "c"}
    assert other.choose() == set(), "those that are kept are leased as before"
    _execute(engine, "UPDATE mailboxes SET gone_at = NULL")
    assert other.choose() == {"a"}, "what was let go is free"
    assert one.choose() == {"b", "c"}


def test_a_source_that_was_edited_is_watched_anew(processes: tuple[Process, Process], engine: Engine) -> None:
    one, other = processes
    assert one.choose() == {"a", "b", "c"}
    _execute(engine, "UPDATE ingestion_sources SET settings = settings || '{\"port\": 2}'")
    assert one.choose() == {"a", "b", "c"}
    assert other.choose() == set()


def test_the_leases_of_a_process_that_died_are_free(processes: tuple[Process, Process]) -> None:
    one, other = processes
    assert one.choose() == {"a", "b", "c"}
    one.die()
    assert other.choose() == {"a", "b", "c"}


def test_a_process_that_watches_nothing_holds_no_transaction(processes: tuple[Process, Process], engine: Engine) -> None:
    one, other = processes
    assert one.choose() == {"a", "b", "c"}
    assert other.choose() == set()
    assert one.leases.info.transaction_status is TransactionStatus.INTRANS
    assert other.leases.info.transaction_status is TransactionStatus.IDLE
    _execute(engine, "UPDATE mailboxes SET gone_at = now()")
    assert one.choose() == set()
    assert one.leases.info.transaction_status is TransactionStatus.IDLE
