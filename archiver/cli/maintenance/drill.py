"""`archiver drill`: proves that the newest backup can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from archiver.cli.terminal.archive import OpenArchive, archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.errors import ArchiverError, UsageError

if TYPE_CHECKING:
    from archiver.workflows.rows import RunRow


def drill(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[SOURCE]", help="A folder or s3://bucket/prefix with backups. Default: BACKUP_TARGET."),
    ] = None,
    json: Json = False,
) -> None:
    """Restore the newest backup into a scratch folder, rebuild it from the packs, and compare counts, hashes and 100 searches.

    The archive stays in use, and is not touched. Exits with 3 if the backup can't be restored as it should.
    """
    with archive_for("drill") as at, progress_bar("Drill", shown=not json) as advance:
        target = source or at.settings.backup_target
        if target is None:
            raise UsageError("name a backup (archiver drill SOURCE), or set BACKUP_TARGET")
        run = _run(at, target, advance)
        found = _outcome(at, run)
    if json:
        print_json(found)
    else:
        for check in found["checks"]:
            mark = "[green]ok[/]    " if check["ok"] else "[red]failed[/]"
            console.print(f"{mark} {check['name']}: ", end="")
            console.print(check["detail"], markup=False, highlight=False)
        verdict = "can be restored" if found["ok"] else f"failed the drill: {found['reason']}"
        console.print(f"The backup {found['backup'] or target} {verdict}.", markup=False)
    raise typer.Exit(0 if found["ok"] else 3)


def _run(at: OpenArchive, target: str, advance: Any) -> RunRow:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.db.ids import uuid7
    from archiver.maintenance.backups.drill import DRILL
    from archiver.maintenance.backups.schedule import start_drill
    from archiver.secrets import credentials_keyring
    from archiver.workflows import service as workflows
    from archiver.workflows.advance import drive
    from archiver.workflows.definition import registry
    from archiver.workflows.step_run import WorkflowResources

    doorbell = uuid7()
    with at.engine.begin() as connection:
        run = start_drill(connection, at.settings, LOCAL_OPERATOR, target, local_doorbell=doorbell)
    resources = WorkflowResources(at.settings, at.engine, at.archive, credentials_keyring(at.settings), registry(DRILL))

    def show() -> None:
        with at.engine.connect() as connection:
            now = workflows.progress(connection, run.id)
        advance(now.done, now.total)

    try:
        drive(resources, run.id, doorbell, show)
    except KeyboardInterrupt:
        with at.engine.begin() as connection:
            workflows.cancel(connection, run.id)
        drive(resources, run.id, doorbell, show)
        raise ArchiverError("the drill was cancelled, and what it wrote is removed") from None
    with at.engine.connect() as connection:
        return workflows.load(connection, run.id)


def _outcome(at: OpenArchive, run: RunRow) -> dict[str, Any]:
    from archiver.maintenance.checks import outcomes

    with at.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.DRILL)
    details = outcome.details if outcome and outcome.details.get("run") == str(run.id) else {}
    return {
        "ok": bool(details) and outcome is not None and not outcome.has_failed,
        "backup": details.get("backup"),
        "target": details.get("target"),
        "messages": details.get("messages"),
        "checks": details.get("checks", []),
        "reason": details.get("reason") or run.error,
    }
