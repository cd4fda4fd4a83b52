"""Runs the exports that are open, as the ingestion worker would."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine, text

from archiver.config import Settings
from archiver.maintenance.snapshot import ensure_signing_key
from archiver.secrets import credentials_keyring
from archiver.store.archive import Archive
from archiver.store.open import open_archive
from archiver.workflows.advance import advance
from archiver.workflows.step_run import WorkflowResources
from workers.workflows import WORKFLOWS

_DOORBELLS = text("""
    SELECT id, CAST(payload -> 'data' ->> 'run_id' AS uuid) AS run_id FROM outbox WHERE job = 'advance-workflow' ORDER BY id""")


def run_exports(settings: Settings, engine: Engine, archive: Archive | None = None) -> None:
    """Until no run is open. The pauses before another attempt are not waited for."""
    opened = archive or open_archive(settings, engine)
    keyring = credentials_keyring(settings)
    ensure_signing_key(engine, opened, keyring)
    resources = WorkflowResources(settings, engine, opened, keyring, WORKFLOWS)
    while doorbells := _doorbells(engine):
        for doorbell, run_id in doorbells:
            advance(resources, run_id, doorbell, lambda: False, lambda _: False)
    if archive is None:
        opened.close()


def _doorbells(engine: Engine) -> list[tuple[UUID, UUID]]:
    with engine.begin() as connection:
        connection.execute(text("UPDATE workflow_steps SET available_at = now() WHERE available_at > now()"))
        return [(row.id, row.run_id) for row in connection.execute(_DOORBELLS)]
