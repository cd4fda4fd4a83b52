"""A small world for the sync engine: its own database, Valkey and data folder, and real worker processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import Engine, text

from archiver.config import load_settings
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.secrets import create_missing_keys, credentials_keyring
from archiver.sources import rows as source_rows
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sources.runs import Run
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from tests.support.waiting import eventually, patient


class World:
    def __init__(self, place: Path, database_url: str, valkey: EmbeddedValkey, **variables: str) -> None:
        self.place, self.database_url, self.valkey = place, database_url, valkey
        self.environment = {
            **os.environ,
            "ARCHIVER_DATA": str(place / "data"),
            "DATABASE_URL": database_url,
            "REDIS_URL": valkey.url(),
            "SYNC_FREQUENCY": "1d",  # the tests say when
            "SLICE_SECONDS": "1",
            "SAMPLE_SOURCES": "true",
            **variables,
        }
        self.settings = load_settings(self.environment, Path("none"))
        create_missing_keys(self.settings)
        self.engine: Engine = make_engine(database_url, "test")
        self.workers: list[subprocess.Popen[bytes]] = []

    # --- sources

    def add(self, name: str = "one", **settings: Any) -> Source:
        return self.add_kind("fake", name, settings, {})

    def add_kind(self, kind: str, name: str, settings: dict[str, Any], secrets: dict[str, str]) -> Source:
        return sources.add(self.engine, credentials_keyring(self.settings), QuietContext(), kind, name, settings, secrets)

    def edit(self, source: Source, **settings: Any) -> None:
        sources.edit(self.engine, credentials_keyring(self.settings), QuietContext(), self.load(source), settings, {})

    def load(self, source: Source) -> Source:
        with self.engine.connect() as connection:
            found = source_rows.load(connection, source.id)
        assert found is not None
        return found

    def start_sync(self, source: Source) -> UUID | None:
        """The id of the newest run before, for `wait`."""
        with self.engine.begin() as connection:
            before = runs.newest_run(connection, source.id)
            current = source_rows.load(connection, source.id)
            assert current is not None
            sources.sync_now(connection, current)
        return before

    def wait(self, source: Source, before: UUID | None, seconds: float = 60.0) -> Run:
        return runs.wait_for_run(self.engine, source.id, before, patient(seconds), lambda _: None)

    def sync(self, source: Source, seconds: float = 60.0) -> Run:
        return self.wait(source, self.start_sync(source), seconds)

    # --- workers

    def start_worker(self, queue: str = "ingestion") -> subprocess.Popen[bytes]:
        log = (self.place / f"worker-{len(self.workers)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "workers", queue, f"--number={len(self.workers) + 1}"],
            env=self.environment,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.workers.append(process)
        return process

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.place.glob("worker-*.log")))

    def stop_workers(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

    # --- what is there

    def rows(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement), values))

    def one(self, statement: str, **values: Any) -> Any:
        (row,) = self.rows(statement, **values)
        return row[0]

    def archive(self, source: Source) -> set[tuple[str, str, str, bytes]]:
        """What an archive is: which bytes lie where, under which key."""
        found = self.rows(
            "SELECT b.address, c.provider_key, c.folder, m.sha256 FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id"
            " JOIN messages m ON m.id = c.message_id WHERE b.source_id = :id",
            id=source.id,
        )
        copies = {(row.address, row.provider_key, row.folder, bytes(row.sha256)) for row in found}
        assert len(copies) == len(found), "a copy twice"
        return copies

    def assert_at_rest(self) -> None:
        """Nothing is under way, announced or stuck."""
        assert self.rows("SELECT * FROM sync_sessions") == []
        assert self.rows("SELECT * FROM sync_session_mailboxes") == []
        assert self.rows("SELECT * FROM outbox WHERE queue = 'ingestion'") == []

    def ticked(self) -> None:
        """Does what the scheduled job does, now."""
        from archiver.store.open import open_archive
        from archiver.sync.ingest.store_batch import Ingest
        from workers.context import WorkerContext
        from workers.processors import schedule_continuous_sync

        archive = open_archive(self.settings, self.engine)
        work = WorkerContext(self.settings, self.engine, Ingest(self.engine, archive), credentials_keyring(self.settings))
        schedule_continuous_sync.process(None, work, None)  # type: ignore[arg-type]
        archive.close()


@contextmanager
def new_world(place: Path, postgres: EmbeddedPostgres, **variables: str) -> Iterator[World]:
    name = f"t_{uuid7().hex}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "template"')
    folder = DataFolder(place / "valkey")
    folder.prepare()
    valkey = EmbeddedValkey(folder)
    valkey.prepare()
    with valkey.running():
        world = World(place, postgres.url(name), valkey, **variables)
        try:
            yield world
        finally:
            world.stop_workers()
            world.engine.dispose()


__all__ = ["World", "eventually", "new_world"]
