"""Imports in one process: a real Postgres and real pack files; the jobs of the outbox are run here, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.access import users
from archiver.access.principal import LOCAL_OPERATOR, ROLE_RIGHTS, Principal
from archiver.config import Settings, load_settings
from archiver.db.states import UserRole
from archiver.queue.jobs import JobEnvelope
from archiver.secrets import create_missing_keys, credentials_keyring
from archiver.sources import imports, upload_imports, uploads
from archiver.sources.imports import Import
from archiver.sources.uploads import Upload
from archiver.store.open import open_archive
from archiver.sync.ingest.store_batch import Ingest
from tests.support import mailfiles
from workers.context import WorkerContext
from workers.processors import PROCESSORS

ANN = "ann@example.org"


@dataclass
class ImportWorld:
    place: Path
    engine: Engine
    database_url: str
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        variables = {"ARCHIVER_DATA": str(self.place / "data"), "DATABASE_URL": self.database_url, "DISK_MIN_FREE_BYTES": "0"}
        self.settings: Settings = load_settings({**variables, **self.variables}, Path("none"))
        create_missing_keys(self.settings)
        archive = open_archive(self.settings, self.engine)
        self.work = WorkerContext(self.settings, self.engine, Ingest(self.engine, archive), credentials_keyring(self.settings))
        with self.engine.begin() as connection:
            admin = users.add(connection, LOCAL_OPERATOR, "admin@example.org", role=UserRole.ADMINISTRATOR, password=None)
        self.admin = Principal(admin.email, admin.role, ROLE_RIGHTS[admin.role], admin.id)

    # --- what people do

    def file(self, name: str, *numbers: int) -> Path:
        return mailfiles.put(self.place / name, mailfiles.mbox([mailfiles.message(number) for number in numbers]))

    def begin(self, *paths: Path, mailbox: str = ANN, **settings: Any) -> Import:
        return imports.begin(self.engine, self.work.keyring, paths, mailbox, settings)

    def uploaded(self, name: str, data: bytes) -> Upload:
        with self.engine.begin() as connection:
            upload = uploads.begin(connection, self.settings, self.admin, name, len(data), None)
        with uploads.open_for_append(self.settings, upload, 0) as file:
            uploads.add_piece(self.settings, file, upload, data)
        return uploads.complete(self.engine, self.settings, self.admin, upload.id)

    def begin_upload(self, *found: Upload, mailbox: str = ANN) -> Import:
        ids = [upload.id for upload in found]
        return upload_imports.begin(self.engine, self.settings, self.work.keyring, self.admin, ids, mailbox)

    def discard(self, item: Import) -> None:
        upload_imports.discard(self.engine, self.settings, self.admin, self.load(item))

    # --- what workers do

    def open_jobs(self) -> list[tuple[UUID, str]]:
        return [
            (row.id, row.job)
            for row in self.rows("SELECT id, job FROM outbox WHERE queue = 'ingestion' AND available_at <= now() ORDER BY id")
        ]

    def run(self, row_id: UUID) -> None:
        (row,) = self.rows("SELECT job, payload FROM outbox WHERE id = :id", id=row_id)
        encoded = {"v": 1, "id": str(row_id), "correlation_id": "", "causation_id": None, "at": "2026-01-01T00:00:00+00:00"}
        envelope = JobEnvelope.decode(row.job, {**encoded, "data": row.payload["data"]})
        PROCESSORS[row.job](envelope.job, self.work, envelope)

    def drain(self, until: Callable[[], bool] = lambda: False) -> None:
        """Until nothing is announced any more."""
        for _ in range(1000):
            jobs = self.open_jobs()
            if not jobs or until():
                return
            self.run(jobs[0][0])
        raise AssertionError("it does not come to an end")

    # --- what is there

    def rows(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement), values))

    def one(self, statement: str, **values: Any) -> Any:
        ((value,),) = self.rows(statement, **values)
        return value

    def act(self, statement: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)

    def load(self, item: Import) -> Import:
        with self.engine.connect() as connection:
            return imports.load(connection, item.id)

    def listed(self, *, only_kept: bool = False) -> list[Import]:
        with self.engine.connect() as connection:
            return imports.listed(connection, self.admin, only_kept=only_kept)

    @property
    def copies(self) -> int:
        return int(self.one("SELECT count(*) FROM message_copies"))

    def kept_files(self) -> list[str]:
        """Below `uploads`, by name."""
        return sorted(path.name for path in uploads.folder(self.settings).rglob("*") if path.is_file())
