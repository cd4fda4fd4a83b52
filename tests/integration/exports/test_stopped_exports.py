"""Exports that fail, are cancelled or repeated leave nothing behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archiver.access.principal import LOCAL_OPERATOR
from archiver.exports import service as exports
from archiver.exports import workflow as export_workflow
from archiver.exports.selection import FLAT, UNLIMITED_BYTES, PackageOptions, Selection
from archiver.exports.verifying import verify_export
from archiver.exports.volume import Volume
from archiver.store.capacity import explain_full_disk
from archiver.workflows import service as workflows
from archiver.workflows.definition import Workflow
from archiver.workflows.step_run import StepRun
from tests.integration.exports.conftest import EVERYTHING, ExportWorld
from workers import workflows as registered


def replaced_step(monkeypatch: pytest.MonkeyPatch, name: str, run: Callable[[StepRun], Any]) -> None:
    """The export with another function for one step."""
    groups = tuple(
        tuple(replace(step, run=run, attempts=1) if step.name == name else step for step in group)
        for group in export_workflow.EXPORT.groups
    )
    changed: Workflow = replace(export_workflow.EXPORT, groups=groups)
    monkeypatch.setattr("tests.support.export_runs.WORKFLOWS", {**registered.WORKFLOWS, changed.name: changed})


STEPS = [step.name for step in export_workflow.EXPORT.steps()]


@pytest.mark.parametrize("name", STEPS)
def test_a_full_disk_in_each_step_leaves_nothing_behind(world: ExportWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The step does its work, and then the disk is full: what it wrote, and what those before it wrote, is removed."""
    real = export_workflow.EXPORT.step(name).run

    def full(run: StepRun) -> Any:
        real(run)
        with explain_full_disk():
            raise OSError(errno.ENOSPC, "No space left on device")

    replaced_step(monkeypatch, name, full)
    one = Selection(message_ids=(world.one("SELECT id FROM messages ORDER BY size_bytes DESC LIMIT 1"),))
    export_id = world.export(one, PackageOptions("pdf" if name == "convert" else "eml"))
    world.finish()
    assert world.state(export_id) == f"failed: {name}: the disk is full, so nothing more is written: free some space"
    assert world.files_left() == []
    assert world.one("SELECT count(*) FROM export_messages") == 0


def test_a_full_disk_while_collecting(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write itself fails, in the middle of a message."""

    def add(self: Volume, *given: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Volume, "add", add)
    export_id = world.export(options=PackageOptions("mbox"))
    world.finish()
    assert world.state(export_id) == "failed: pack: the disk is full, so nothing more is written: free some space"
    assert world.files_left() == []


def test_cancelling_removes_what_was_written(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    real = export_workflow.EXPORT.step("verify").run

    def cancel(run: StepRun) -> Any:
        exports.remove(world.engine, world.settings, world.who, run.run_id)
        return real(run)

    replaced_step(monkeypatch, "verify", cancel)
    export_id = world.export()
    world.finish()
    assert world.state(export_id) == "failed: cancelled"
    assert world.files_left() == []
    assert world.rows("SELECT action FROM audit_log WHERE object_id = :i ORDER BY id", i=str(export_id)) == [
        ("export.requested",),
        ("export.cancelled",),
    ]


def test_a_step_that_is_repeated_gives_the_same_export(world: ExportWorld) -> None:
    """As after a crash behind each of its steps, before the result was stored."""
    export_id = world.export()
    with world.engine.connect() as connection:
        run = workflows.load(connection, export_id)
    assert run.is_open
    groups = tuple(tuple(replace(step, run=twice(step.run)) for step in group) for group in export_workflow.EXPORT.groups)
    doubled = replace(export_workflow.EXPORT, groups=groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.export_runs.WORKFLOWS", {doubled.name: doubled})
        world.finish()
    assert world.state(export_id) == "done"
    check = verify_export(world.volumes(export_id), world.key())
    assert (check.problems, check.messages) == ([], len(world.hashes()))


def twice(run: Callable[[StepRun], Any]) -> Callable[[StepRun], Any]:
    def call(step: StepRun) -> Any:
        run(StepRun(step.resources, step.claim))
        return run(step)

    return call


@pytest.mark.parametrize("kind", ["eml", "mbox", "maildir"])
@pytest.mark.parametrize("name", ["deliver", "publish"])
def test_a_single_file_that_can_not_be_completed(
    world: ExportWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """Before it is delivered, the file that was there stays; afterwards the new one is there, whole. Nothing else is left."""
    target = tmp_path / "out" / "mail"
    target.parent.mkdir()
    if kind != "maildir":
        target.write_bytes(b"before")

    def fail(run: StepRun) -> Any:
        with explain_full_disk():
            raise OSError(errno.ENOSPC, "No space left on device")

    replaced_step(monkeypatch, name, fail)
    options = PackageOptions(kind, FLAT, UNLIMITED_BYTES)
    with world.engine.begin() as connection:
        exports.request(connection, world.settings, LOCAL_OPERATOR, EVERYTHING, options, output=target)
    world.finish()
    assert world.rows("SELECT state FROM exports") == [("failed",)]
    left = sorted(path.name for path in target.parent.iterdir())
    if name == "publish":
        assert verify_export([target]).problems == []
    else:
        assert left == ([] if kind == "maildir" else ["mail"])
        assert kind == "maildir" or target.read_bytes() == b"before"
    assert not [one for one in left if one.startswith(".")]
