"""Workers that are killed (-9) while they write an export: another one finishes it, and nothing is written twice or left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine

from archiver.exports import packing
from archiver.exports import service as exports
from archiver.exports.package_files import PackageFolder, whole_file
from archiver.exports.selection import PackageOptions, Selection
from archiver.exports.verifying import verify_export
from archiver.maintenance.snapshot import ensure_signing_key
from archiver.store.open import open_archive
from archiver.workflows.advance import advance
from archiver.workflows.step_run import WorkflowResources
from connectors.base import RawMessage
from tests.integration.exports.conftest import ExportWorld
from tests.integration.workflows.sample import in_child
from workers.workflows import WORKFLOWS


def killed(world: ExportWorld, export_id: UUID, dies_at: int) -> bool:
    """Its worker dies at its n-th transaction boundary. False if it was done before that."""
    doorbell = world.one("SELECT id FROM outbox WHERE job = 'advance-workflow' ORDER BY id LIMIT 1")

    def work_on(engine: Engine) -> None:
        archive = open_archive(world.settings, engine)
        resources = WorkflowResources(world.settings, engine, archive, world.work.keyring, WORKFLOWS)
        advance(resources, export_id, doorbell, lambda: False, lambda _: False)

    return in_child(world.database_url, work_on, dies_at)


def few(world: ExportWorld) -> Selection:
    return Selection(message_ids=tuple(row[0] for row in world.rows("SELECT id FROM messages ORDER BY size_bytes LIMIT 4")))


def die_at(world: ExportWorld, number: int, kind: str) -> bool:
    """One export, killed there and finished. What it gives is whole, whatever had been written."""
    export_id = world.export(few(world), PackageOptions(kind))
    died = killed(world, export_id, number)
    world.finish()
    assert world.state(export_id) == "done"
    check = verify_export(world.volumes(export_id), world.key())
    assert (check.problems, check.messages) == ([], 4)
    folder = exports.folder_of(world.settings, export_id).path
    assert [path.name for path in folder.iterdir()] == ["export-001.zip"]
    exports.remove(world.engine, world.settings, world.who, export_id)
    return died


@pytest.fixture
def ready(world: ExportWorld) -> ExportWorld:
    ensure_signing_key(world.engine, world.work.ingest.archive, world.work.keyring)
    return world


def test_killed_at_boundaries_of_all_steps(ready: ExportWorld) -> None:
    """Every sixth one; `make chaos` takes all."""
    deaths = sum(die_at(ready, number, "eml") for number in range(2, 48, 6))
    assert deaths >= 6
    assert ready.files_left() == []


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["eml", "mbox", "maildir", "csv", "pdf"])
def test_killed_at_every_boundary(ready: ExportWorld, kind: str) -> None:
    number = 1
    while die_at(ready, number, kind):
        number += 1
    assert number > 30
    assert ready.files_left() == []


def test_packing_goes_on_with_the_volume_that_was_not_finished(ready: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tuple(RawMessage(f"b{n}", b"Subject: big\n\n" + bytes([65 + n]) * 900_000, folder="Big") for n in range(4))
    ready.store(large)
    export_id = ready.export(options=PackageOptions(volume_bytes=1 << 20))
    parent, real = os.getpid(), whole_file

    def die_in_third(path: Path):  # type: ignore[no-untyped-def]
        if path.name == "volume-000003.zip" and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path)

    monkeypatch.setattr(packing, "whole_file", die_in_third)
    assert killed(ready, export_id, 10_000)
    files = exports.folder_of(ready.settings, export_id)
    packed = {path.name: path.stat().st_mtime_ns for path in files.parts.glob("volume-*.zip")}
    assert len(packed) == 2
    seen: dict[str, int] = {}
    real_seal = packing.seal_last

    def note(given: PackageFolder, volumes: int) -> None:
        seen.update({path.name: path.stat().st_mtime_ns for path in given.parts.glob("volume-*.zip")})
        real_seal(given, volumes)

    monkeypatch.setattr("archiver.exports.workflow.seal_last", note)
    ready.finish()
    assert ready.state(export_id) == "done"
    assert packed.items() <= seen.items(), "what was complete was not packed again"
    assert verify_export(ready.volumes(export_id), ready.key()).problems == []
