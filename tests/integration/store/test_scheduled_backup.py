"""Backups that run by themselves: when they are due, and as a workflow that a worker drives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings, load_settings
from archiver.db.ids import uuid7
from archiver.db.states import WorkflowState
from archiver.errors import ConfigError, UsageError
from archiver.maintenance.backups import schedule
from archiver.maintenance.backups.manifest import kept_backups
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.backups.workflow import BACKUP
from archiver.maintenance.checks import outcomes
from archiver.secrets import Keyring
from archiver.workflows import service as workflows
from archiver.workflows.advance import drive
from archiver.workflows.definition import registry
from archiver.workflows.rows import RunRow
from archiver.workflows.step_run import WorkflowResources
from tests.integration.store.conftest import World
from tests.integration.store.filled import fill
from tests.integration.store.test_backup import url_of

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def settings_for(world: World, target: Path, **more: str) -> Settings:
    variables = {"DATABASE_URL": url_of(world), "BACKUP_TARGET": str(target), "ARCHIVER_DATA": str(world.folder.parent)}
    variables["DRILL_FREQUENCY"] = "never"
    return load_settings(variables | more, Path("no such file"))


def run_to_the_end(world: World, settings: Settings, run: RunRow) -> RunRow:
    resources = WorkflowResources(settings, world.engine, world.archive, Keyring.generate(), registry(BACKUP))
    drive(resources, run.id, uuid7())
    with world.engine.connect() as connection:
        return workflows.load(connection, run.id)


def due(world: World, settings: Settings) -> list[RunRow]:
    with world.engine.begin() as connection:
        return schedule.start_due(connection, settings)


def make_older(world: World, hours: int) -> None:
    with world.engine.begin() as connection:
        for statement in (
            "UPDATE workflow_runs SET created_at = created_at - :age",
            "UPDATE maintenance_outcomes SET succeeded_at = succeeded_at - :age, failed_at = failed_at - :age",
        ):
            connection.execute(text(statement), {"age": timedelta(hours=hours)})


def test_a_backup_is_made_when_it_is_due_and_not_before(world: World, tmp_path: Path) -> None:
    settings = settings_for(world, tmp_path / "backup", BACKUP_KEEP="2")
    assert due(world, settings) == [], "there is nothing to back up yet"
    fill(world)
    (run,) = due(world, settings)
    assert due(world, settings) == [], "one at a time"
    assert run_to_the_end(world, settings, run).state is WorkflowState.DONE
    assert len(kept_backups(FolderTarget(tmp_path / "backup"))) == 1
    assert due(world, settings) == []
    drilling = settings.model_copy(update={"drill_frequency": "30d"})
    assert [one.workflow for one in due(world, drilling)] == ["drill"], "the first one follows the first backup"
    assert due(world, drilling) == []
    make_older(world, 23)
    assert due(world, settings) == []
    make_older(world, 2)
    (again,) = due(world, settings)
    assert run_to_the_end(world, settings, again).state is WorkflowState.DONE
    assert len(kept_backups(FolderTarget(tmp_path / "backup"))) == 2
    assert due(world, settings.model_copy(update={"backup_target": None})) == []


def test_one_that_failed_is_recorded_and_tried_again_within_the_hour(world: World, tmp_path: Path) -> None:
    fill(world)
    (tmp_path / "file").write_text("not a folder")
    settings = settings_for(world, tmp_path / "file")
    (run,) = due(world, settings)
    ended = run_to_the_end(world, settings, run)
    assert ended.state is WorkflowState.FAILED
    with world.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.BACKUP)
    assert outcome is not None
    assert outcome.has_failed
    assert due(world, settings) == []
    make_older(world, 1)
    (tmp_path / "file").unlink()
    (again,) = due(world, settings)
    assert run_to_the_end(world, settings, again).state is WorkflowState.DONE


def test_a_backup_on_request_needs_a_target(world: World, tmp_path: Path) -> None:
    settings = settings_for(world, tmp_path / "backup").model_copy(update={"backup_target": None})
    with world.engine.begin() as connection, pytest.raises(UsageError, match="BACKUP_TARGET is not set"):
        schedule.start_backup(connection, settings, LOCAL_OPERATOR)


@pytest.mark.parametrize(
    ("frequency", "last", "expected"),
    [
        ("6h", NOON - timedelta(hours=1), NOON + timedelta(hours=5)),
        ("0 3 * * *", NOON - timedelta(days=3), NOON.replace(hour=3) - timedelta(days=2)),
        ("0 3 * * *", NOON, NOON.replace(hour=3) + timedelta(days=1)),
        ("30d", None, NOON),
        ("never", None, None),
    ],
)
def test_when_it_is_due(frequency: str, last: datetime | None, expected: datetime | None) -> None:
    assert schedule.next_due(frequency, last, NOON) == expected


@pytest.mark.parametrize("target", ["ftp://host/x", "s3://", "s3://b", "s3:///prefix"])
def test_targets_that_are_none(target: str) -> None:
    with pytest.raises(ConfigError, match=r"BACKUP_TARGET=.*expected a folder, or s3://bucket/prefix"):
        load_settings({"BACKUP_TARGET": target}, Path("no such file"))
