"""The backup as a workflow, so that it is scheduled, shown, cancelled and continued like other long work."""

from __future__ import annotations

from dataclasses import dataclass

from archiver.errors import UsageError
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.target import open_target
from archiver.workflows.definition import Step, Workflow
from archiver.workflows.step_run import StepRun

_SECONDS = 5 * 3600.0


@dataclass(frozen=True, slots=True)
class BackupInput:
    target: str


@dataclass(frozen=True, slots=True)
class FinishedBackup:
    name: str
    packs: int
    copied: int
    bytes_copied: int


def copy(run: StepRun) -> FinishedBackup:
    """As the role of the program, which may read everything. An attempt that was cut off left its finished packs."""
    given: BackupInput = run.input
    resources = run.resources
    url = resources.settings.database_owner_url or resources.settings.database_url
    if url is None:
        raise UsageError("a backup needs the address of the database")
    target = open_target(resources.settings, given.target)
    done = backup(
        resources.engine,
        resources.archive,
        url.get_secret_value(),
        target,
        run.report,
        keep=resources.settings.backup_keep,
    )
    return FinishedBackup(done.name, done.packs, done.copied, done.bytes_copied)


BACKUP = Workflow(
    "backup",
    1,
    BackupInput,
    ((Step("copy", copy, FinishedBackup, timeout_seconds=_SECONDS),),),
    open_runs_per_owner=1,
)
