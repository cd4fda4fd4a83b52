"""Imports that an earlier release requested, whose settings stand in their source: none is lost at the upgrade."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.db.ids import uuid7
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources import uploads
from archiver.sync import import_queue as turns
from migrations.versions import m0009_imports
from tests.integration.sync.import_world import ANN, ImportWorld
from tests.support import mailfiles


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ImportWorld:
    return ImportWorld(tmp_path, engine, database_url)


def _as_before(world: ImportWorld, path: Path, number: int = 0) -> UUID:
    """An import as an earlier release requests it: in the settings of its source."""
    item = world.begin(path)
    world.act(
        "UPDATE ingestion_sources SET status = 'pending',"
        " settings = i.settings || jsonb_build_object('number', CAST(:n AS int))"
        " FROM imports i WHERE i.source_id = ingestion_sources.id",
        n=number,
    )
    world.act("DELETE FROM imports")
    world.act("UPDATE outbox SET payload = payload #- '{data,import_id}'")
    return item.source_id


def test_an_import_that_an_earlier_release_requested_is_read(world: ImportWorld) -> None:
    source_id = _as_before(world, world.file("a.mbox", 1, 2), 7)
    world.drain()
    assert world.copies == 2
    assert world.rows("SELECT source_id, number, outcome, mailbox FROM imports") == [(source_id, 7, "success", ANN)]
    second = world.begin(world.file("b.mbox", 3))
    world.drain()
    assert (world.load(second).number, world.load(second).outcome, world.copies) == (8, "success", 3)


def test_an_import_under_way_at_the_upgrade_finishes(world: ImportWorld) -> None:
    """Its session has listed its mailboxes, and read nothing yet."""
    _as_before(world, world.file("a.mbox", 1, 2), 3)
    world.run(world.open_jobs()[0][0])
    world.act("DELETE FROM imports")
    _upgrade(world)
    ((session_id,),) = world.rows("SELECT id FROM sync_sessions")
    assert world.rows("SELECT session_id, outcome, number FROM imports") == [(session_id, None, 3)]
    world.drain()
    assert (world.copies, world.one("SELECT outcome FROM imports")) == (2, "success")


@pytest.mark.parametrize(
    ("content", "outcome"), [(mailfiles.mbox([mailfiles.message(1)]), "success"), (b"\0" * 99, "incomplete")]
)
def test_files_that_an_earlier_release_took_from_an_upload(world: ImportWorld, content: bytes, outcome: str) -> None:
    """Their only copy lies in the folder of the import: removed after success, else kept until it is discarded."""
    place = uploads.folder(world.settings) / f"import-{uuid7()}"
    _as_before(world, mailfiles.put(place / "0" / "mail.mbox", content), 1)
    world.drain()
    (item,) = world.listed()
    assert (item.outcome, item.upload_folder) == (outcome, place.name)
    assert (place.exists(), item.keeps_upload) == (outcome != "success", outcome != "success")
    if outcome != "success":
        world.discard(item)
    assert not place.exists()


@pytest.mark.parametrize(
    ("status", "last_run", "announced", "expected"),
    [
        ("imported", "success", False, ("success", True)),
        ("imported", "incomplete", False, ("incomplete", True)),
        ("error", "failed", False, ("failed", True)),
        ("active", "cancelled", False, ("cancelled", True)),  # paused and resumed, and stuck since
        ("paused", "cancelled", False, (None, False)),
        ("pending", None, False, (None, False)),
        ("imported", "success", True, (None, False)),
    ],
)
def test_what_the_upgrade_makes_of_an_import(
    world: ImportWorld, status: str, last_run: str | None, announced: bool, expected: tuple[str | None, bool]
) -> None:
    """(outcome, whether it has a run.) What had not ended waits for its turn."""
    source_id, run_id = _as_before(world, world.file("a.mbox", 1), 5), uuid7()
    world.act("UPDATE ingestion_sources SET status = :status, next_due_at = now()", status=status)
    if not announced:
        world.act("DELETE FROM outbox")
    if last_run:
        world.act(
            "INSERT INTO sync_runs (id, source_id, outcome, started_at) VALUES (:id, :source, :outcome, now())",
            id=run_id,
            source=source_id,
            outcome=last_run,
        )
    _upgrade(world)
    assert world.rows("SELECT outcome, session_id IS NOT NULL, number, mailbox FROM imports") == [(*expected, 5, ANN)]
    world.drain()
    wanted = "imported" if status == "active" or announced else status
    assert world.rows("SELECT status, next_due_at FROM ingestion_sources") == [(wanted, None)] or announced
    if status == "paused":
        with world.engine.begin() as connection:
            sources.resume(connection, source_rows.find(connection, f"import:{ANN}"))
    with world.engine.begin() as connection:
        turns.start_orphaned(connection)  # as the next tick does
    world.drain()
    assert world.one("SELECT outcome FROM imports") == (expected[0] or "success")


def _upgrade(world: ImportWorld) -> None:
    """The migration's own statements."""
    with world.engine.begin() as connection:
        for statement in (m0009_imports._ADOPT, m0009_imports._SETTLE, m0009_imports._PUT_OFF):
            connection.execute(text(statement))
