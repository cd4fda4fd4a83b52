"""An archive whose mail is exported."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from archiver.evidence import signing
from archiver.exports import service as exports
from archiver.exports.selection import PackageOptions, Selection
from archiver.sync.ingest.store_batch import load_origin
from connectors.base import Batch, RawMessage
from tests.integration.sync.import_world import ImportWorld
from tests.support.awkward_mail import AWKWARD
from tests.support.export_runs import run_exports

EVERYTHING = Selection(everything=True)


class ExportWorld(ImportWorld):
    def fill(self) -> None:
        """Three messages in a file's folder, and awkward ones with flags and labels in folders that are hard to write."""
        self.begin(self.file("a.mbox", 1, 2, 3))
        self.drain()
        self.act("UPDATE users SET may_read_all = true")
        self.who = replace(self.admin, may_read_all=True)
        folders = ("INBOX", "Work/2024: Q1", "../../etc")
        mails = tuple(
            RawMessage(f"k{number}", data, folder=folders[number % 3], flags=("\\Seen",), labels=("red",))
            for number, data in enumerate(AWKWARD)
        )
        self.store(mails)

    def store(self, mails: tuple[RawMessage, ...]) -> None:
        with self.engine.connect() as connection:
            origin = load_origin(connection, self.one("SELECT id FROM mailboxes"))
        self.work.ingest.store_batch(origin, Batch(mails))

    def export(self, selection: Selection = EVERYTHING, options: PackageOptions = PackageOptions()) -> UUID:  # noqa: B008
        with self.engine.begin() as connection:
            return exports.request(connection, self.settings, self.who, selection, options)

    def finish(self) -> None:
        run_exports(self.settings, self.engine, self.work.ingest.archive)

    def state(self, export_id: UUID) -> str:
        return str(self.one("SELECT state || coalesce(': ' || error, '') FROM exports WHERE id = :i", i=export_id))

    def volumes(self, export_id: UUID) -> list[Path]:
        return exports.folder_of(self.settings, export_id).volumes()

    def key(self) -> bytes:
        with self.engine.connect() as connection:
            return signing.public_keys(connection)[0].public_bytes

    def hashes(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT encode(sha256, 'hex') FROM messages")}

    def files_left(self) -> list[Path]:
        return list((self.settings.archiver_data / "exports").rglob("*"))


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ExportWorld:
    made = ExportWorld(tmp_path, engine, database_url)
    made.fill()
    return made


def manifest_of(volumes: list[Path]) -> list[dict[str, Any]]:
    with zipfile.ZipFile(volumes[-1]) as last:
        return [json.loads(line) for line in last.read("manifest.jsonl").splitlines()]
