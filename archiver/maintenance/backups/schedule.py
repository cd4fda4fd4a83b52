"""When backups and drills are due. Their state is in Postgres, so that a restart neither repeats nor forgets one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NoReturn
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.config import Settings, interval_seconds
from archiver.db.sql import query_one
from archiver.errors import UsageError
from archiver.maintenance.backups.backup import BackupRunning
from archiver.maintenance.backups.drill import DRILL, DrillInput
from archiver.maintenance.backups.workflow import BACKUP, BackupInput
from archiver.maintenance.checks import outcomes
from archiver.maintenance.checks.outcomes import MaintenanceOutcome
from archiver.workflows import service as workflows
from archiver.workflows.definition import Workflow
from archiver.workflows.rows import RunRow

SCHEDULER = Principal("archiver", LOCAL_OPERATOR.role, frozenset())
NEVER = "never"
_RETRY = timedelta(hours=1)
_RETRY_DRILL = timedelta(days=1)
_HAS_MAIL = "SELECT EXISTS (SELECT 1 FROM messages)"


def next_due(schedule: str, last: datetime | None, now: datetime) -> datetime | None:
    """None for never; `now` or earlier if it is due."""
    if schedule == NEVER:
        return None
    if last is None:
        return now
    seconds = interval_seconds(schedule)
    if seconds is not None:
        return last + timedelta(seconds=seconds)
    from croniter import croniter

    found: datetime = croniter(schedule, last, second_at_beginning=True).get_next(datetime)
    return found


def next_backup(connection: Connection, settings: Settings, now: datetime) -> datetime | None:
    """One that failed is tried again after an hour, at the latest."""
    if settings.backup_target is None or not query_one(connection, _HAS_MAIL, bool):
        return None
    outcome = outcomes.load(connection, outcomes.BACKUP)
    due = next_due(settings.backup_frequency, _last(connection, BACKUP, outcome), now)
    if due is not None and outcome is not None and outcome.has_failed and outcome.failed_at is not None:
        return min(due, outcome.failed_at + _RETRY)
    return due


def next_drill(connection: Connection, settings: Settings, now: datetime) -> datetime | None:
    """The first one as soon as there is a backup; one that failed is tried again after a day, at the latest."""
    backup, outcome = outcomes.load(connection, outcomes.BACKUP), outcomes.load(connection, outcomes.DRILL)
    if settings.backup_target is None or backup is None or backup.succeeded_at is None:
        return None
    due = next_due(settings.drill_frequency, _last(connection, DRILL, outcome), now)
    if due is not None and outcome is not None and outcome.has_failed and outcome.failed_at is not None:
        return min(due, outcome.failed_at + _RETRY_DRILL)
    return due


def start_due(connection: Connection, settings: Settings) -> list[RunRow]:
    """Called by the tick, which runs in one process at a time."""
    now = datetime.now(UTC)
    started = []
    for workflow, due, start in (
        (BACKUP, next_backup(connection, settings, now), start_backup),
        (DRILL, next_drill(connection, settings, now), start_drill),
    ):
        if due is not None and due <= now and not workflows.has_open(connection, workflow):
            started.append(start(connection, settings, SCHEDULER))
    return started


def start_backup(connection: Connection, settings: Settings, principal: Principal) -> RunRow:
    target = settings.backup_target or _no_target()
    if workflows.has_open(connection, BACKUP):
        raise BackupRunning("a backup is running already: wait for its end")
    run = workflows.start(connection, BACKUP, BackupInput(target), principal)
    audit.record(connection, principal, "backup.started", "workflow", str(run.id), target=target)
    return run


def start_drill(
    connection: Connection,
    settings: Settings,
    principal: Principal,
    target: str | None = None,
    *,
    local_doorbell: UUID | None = None,
) -> RunRow:
    """`local_doorbell`: the caller drives it (archiver.workflows.service.start)."""
    target = target or settings.backup_target or _no_target()
    if workflows.has_open(connection, DRILL):
        raise BackupRunning("a drill is running already: wait for its end, or cancel it")
    run = workflows.start(connection, DRILL, DrillInput(target), principal, local_doorbell=local_doorbell)
    audit.record(connection, principal, "drill.started", "workflow", str(run.id), target=target)
    return run


def _no_target() -> NoReturn:
    raise UsageError("BACKUP_TARGET is not set: name a folder on another disk, or s3://bucket/prefix")


def _last(connection: Connection, workflow: Workflow, outcome: MaintenanceOutcome | None) -> datetime | None:
    """The last start, or the last end of one that a command ran by itself."""
    times = [workflows.last_started(connection, workflow)]
    times += [outcome.succeeded_at, outcome.failed_at] if outcome else []
    return max((one for one in times if one is not None), default=None)
