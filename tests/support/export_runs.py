"""Runs the exports that are open, as the ingestion worker would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine, text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings, load_settings
from archiver.evidence import signing
from archiver.exports import service as exports
from archiver.exports.selection import FLAT, UNLIMITED_BYTES, PackageOptions, Selection
from archiver.exports.volume_reading import missing_messages
from archiver.maintenance.snapshot import ensure_signing_key
from archiver.secrets import Keyring, credentials_keyring
from archiver.store.archive import Archive
from archiver.store.open import open_archive
from archiver.workflows.advance import advance
from archiver.workflows.step_run import WorkflowResources
from workers.workflows import WORKFLOWS

EVERYTHING = Selection(everything=True)
_DOORBELLS = text("""
    SELECT id, CAST(payload -> 'data' ->> 'run_id' AS uuid) AS run_id FROM outbox WHERE job = 'advance-workflow' ORDER BY id""")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    messages: int
    failed: list[dict[str, str]]


def export_file(
    engine: Engine,
    archive: Archive,
    target: Path,
    kind: str,
    selection: Selection = EVERYTHING,
    settings: Settings | None = None,
) -> ExportedFile:
    """As `archiver export -o TARGET` writes it."""
    given = settings or load_settings({"ARCHIVER_DATA": str(target.parent)}, Path("none"))
    options = PackageOptions("eml" if kind == "zip" else kind, FLAT, UNLIMITED_BYTES)
    keyring = Keyring({"test": b"k" * 32})
    with engine.begin() as connection:
        signing.create_key(connection, keyring)
        export_id = exports.request(connection, given, LOCAL_OPERATOR, selection, options, output=target)
    _run_all(WorkflowResources(given, engine, archive, keyring, WORKFLOWS))
    with engine.connect() as connection:
        item = exports.load(connection, LOCAL_OPERATOR, export_id)
    assert item.state == "done", item.error
    return ExportedFile(item.messages, missing_messages(target))


def run_exports(settings: Settings, engine: Engine, archive: Archive | None = None) -> None:
    """Until no run is open. The pauses before another attempt are not waited for."""
    opened = archive or open_archive(settings, engine)
    keyring = credentials_keyring(settings)
    ensure_signing_key(engine, opened, keyring)
    _run_all(WorkflowResources(settings, engine, opened, keyring, WORKFLOWS))
    if archive is None:
        opened.close()


def _run_all(resources: WorkflowResources) -> None:
    while doorbells := _doorbells(resources.engine):
        for doorbell, run_id in doorbells:
            advance(resources, run_id, doorbell, lambda: False, lambda _: False)


def _doorbells(engine: Engine) -> list[tuple[UUID, UUID]]:
    with engine.begin() as connection:
        connection.execute(text("UPDATE workflow_steps SET available_at = now() WHERE available_at > now()"))
        return [(row.id, row.run_id) for row in connection.execute(_DOORBELLS)]
