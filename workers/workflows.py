"""The workflows that workers run, by name."""

from __future__ import annotations

from archiver.cleanups.workflow import CLEANUP, CLEANUP_CHECK
from archiver.exports.workflow import EXPORT
from archiver.maintenance.backups.drill import DRILL
from archiver.maintenance.backups.workflow import BACKUP
from archiver.marks.workflow import CHANGE
from archiver.restores.workflow import RESTORE, RESTORE_CHECK
from archiver.workflows.definition import Registry, registry

WORKFLOWS: Registry = registry(EXPORT, BACKUP, DRILL, CHANGE, RESTORE_CHECK, RESTORE, CLEANUP_CHECK, CLEANUP)
