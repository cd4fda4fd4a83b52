"""The real archive under the model: real packs, a real Postgres, and processes that start, work and die."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

import psycopg
from sqlalchemy import Engine, text

from archiver.db import row_types
from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.dictionaries import Trainer
from archiver.store.files import Files
from archiver.store.keys import PackKeys
from archiver.store.local import LocalPacks
from archiver.store.open import DatabasePlaces
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.sync.ingest.store_batch import Ingest, load_origin
from tests.integration.store.conftest import SOURCE
from tests.model.kills import Killed, MortalFiles, Steps

PACK_LIMIT_BYTES = 60_000
_PRESENT = """
    SELECT c.mailbox_id, c.provider_key, c.folder, m.sha256 FROM message_copies c JOIN messages m ON m.id = c.message_id
    WHERE c.deleted_at IS NULL"""

_SET_UP = (
    "INSERT INTO ingestion_sources (id, kind, name) VALUES (:source, 'imap', 'work') ON CONFLICT (id) DO NOTHING",
    """INSERT INTO mailboxes (id, source_id, address) VALUES (:mailbox, :source, 'm-' || CAST(:mailbox AS text))
       ON CONFLICT (id) DO NOTHING""",
)


class Databases:
    """Databases of one server, copied as a whole: that is what restoring a dump comes down to."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._made: list[str] = []

    def make(self, template: str = "template") -> str:
        name = f"model_{uuid7().hex}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
        self._made.append(name)
        return name

    def url(self, name: str) -> str:
        return self._server.url(name)

    def drop_all(self) -> None:
        for name in self._made:
            self._run(f'DROP DATABASE "{name}" WITH (FORCE)')
        self._made.clear()

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


class Process:
    """One life of the program: an archive that is open, with a number of writes to live."""

    def __init__(self, engine: Engine, folder: Path, keyring: Keyring, last_step: int | None = None) -> None:
        self.engine = engine
        self.steps = Steps(last_step)
        self.steps.watch(engine)
        files: Files = MortalFiles(self.steps)
        keys, trainer, places = PackKeys(keyring), Trainer(), DatabasePlaces(engine)
        backend = LocalPacks(folder, keys, trainer, places.known_end, files=files, limit_bytes=PACK_LIMIT_BYTES)
        self.archive = Archive(backend, keys, trainer, places)
        self.ingest = Ingest(engine, self.archive)

    def end(self) -> None:
        self.archive.close()
        self.steps.unwatch(self.engine)
        self.engine.dispose()


class Subject:
    def __init__(self, databases: Databases, folder: Path) -> None:
        self.databases = databases
        self.folder = folder
        self.keyring = Keyring({"first": b"k" * 32})
        self.database = databases.make()
        self._engine: Engine | None = None
        self._process: Process | None = None

    @property
    def packs(self) -> Path:
        return self.folder / "packs"

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = make_engine(self.databases.url(self.database), "model")
        return self._engine

    @property
    def process(self) -> Process:
        if self._process is None:
            self._process = Process(self.engine, self.packs, self.keyring)
        return self._process

    @property
    def archive(self) -> Archive:
        return self.process.archive

    def stop(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None
        if self._engine is not None:
            self._engine.dispose()

    @contextmanager
    def mortal(self, last_step: int) -> Iterator[list[bool]]:
        """A process that dies before its write number `last_step`. What is yielded holds True afterwards if it did."""
        self.stop()
        self._process = Process(self.engine, self.packs, self.keyring, last_step)
        died: list[bool] = []
        try:
            yield died
        except Killed:
            died.append(True)
        finally:
            self._process.steps.last = 0 if died else None
            try:
                self.stop()
            except Killed:
                self._process = None
                self.engine.dispose()

    def use_database(self, name: str) -> None:
        self.stop()
        self._engine = None
        self.database = name

    def snapshot(self) -> str:
        self.stop()
        self._engine = None
        return self.databases.make(self.database)

    def rows(self, statement: str, **parameters: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement), parameters).all())

    def present(self) -> dict[tuple[UUID, str], tuple[bytes, str]]:
        """Live copies: by mailbox and key, the hash and the folder."""
        return {(row.mailbox_id, row.provider_key): (bytes(row.sha256), row.folder) for row in self.rows(_PRESENT)}

    def origin(self, mailbox_id: UUID) -> Any:
        """After a rebuild from packs that never heard of a mailbox, it is set up once more."""
        with self.engine.begin() as connection:
            for statement in _SET_UP:
                connection.execute(text(statement), {"source": SOURCE, "mailbox": mailbox_id})
            return load_origin(connection, mailbox_id)


class Clock:
    """The wall clock of the program, which can be set."""

    def __init__(self) -> None:
        self.offset = timedelta(0)
        self._replaced: list[Any] = []

    def install(self) -> None:
        clock = self

        class Real(type):
            """A real date is one of these, too: statements name the type of their values."""

            def __subclasscheck__(cls, other: type) -> bool:
                return issubclass(other, datetime)

        class Stepped(datetime, metaclass=Real):
            def __new__(cls, *fields: Any, **named: Any) -> datetime:  # type: ignore[misc]  # plain ones, which orjson writes
                return datetime(*fields, **named)

            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return datetime.now(tz) + clock.offset

        for name, module in list(sys.modules.items()):
            if name.startswith("archiver.") and getattr(module, "datetime", None) is datetime:
                module.datetime = Stepped  # type: ignore[attr-defined]
                self._replaced.append(module)
        # the classes of rows name the real one
        vars(row_types)["get_type_hints"] = lambda row: get_type_hints(row, localns={"datetime": datetime})

    def remove(self) -> None:
        vars(row_types)["get_type_hints"] = get_type_hints
        for module in self._replaced:
            module.datetime = datetime
        self._replaced.clear()
