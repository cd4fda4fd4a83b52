"""`archiver source clean-up`: deletes archived mail at the source, after a dry run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archiver.cli.terminal.archive import OpenArchive, archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.errors import ArchiverError
from archiver.quantity import quantity

if TYPE_CHECKING:
    from uuid import UUID

    from archiver.cleanups.rows import CleanupEntry, CleanupJob

_NAMED = 1000


def clean_up(
    name: Annotated[str, typer.Argument(help="The source's name, or its id.")],
    delete: Annotated[bool, typer.Option("--delete", help="After the dry run, delete what it found. Asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Make room on the server: a dry run says which archived mail may be deleted there, and why other mail is kept. With
    --delete, it is moved to the server's trash.

    The source has to allow it (delete_after_days). Exits with 1 if something was not as expected: nothing more is deleted then.
    """
    with archive_for("clean-up") as at, progress_bar("checking", shown=not json) as advance:
        found = _Run(at, advance)
        cleanup_id = found.check(name)
        job, kept = found.load(cleanup_id), found.kept(cleanup_id)
        if delete and job.ready and job.state == "ready" and (yes or _confirm(job)):
            found.delete(cleanup_id)
            job = found.load(cleanup_id)
        elif job.state == "ready":
            found.forget(cleanup_id)
    _print(job, kept, json=json)
    if job.error:
        raise ArchiverError(f"the clean-up stopped: {job.error}")


def _confirm(job: CleanupJob) -> bool:
    return typer.confirm(f"Delete {quantity(job.ready, 'message')} of {job.source_name} on the server?", err=True)


class _Run:
    def __init__(self, at: OpenArchive, advance: Any) -> None:
        self._at, self._advance = at, advance

    def check(self, name: str) -> UUID:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups
        from archiver.db.ids import uuid7
        from archiver.sources import rows

        doorbell = uuid7()
        with self._at.engine.begin() as connection:
            source = rows.find(connection, name)
            cleanup_id = cleanups.request(connection, LOCAL_OPERATOR, source, local_doorbell=doorbell)
        self._drive(cleanup_id, doorbell)
        return cleanup_id

    def delete(self, cleanup_id: UUID) -> None:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups
        from archiver.db.ids import uuid7

        doorbell = uuid7()
        with self._at.engine.begin() as connection:
            cleanups.start(connection, LOCAL_OPERATOR, cleanup_id, local_doorbell=doorbell)
        self._drive(cleanup_id, doorbell)

    def forget(self, cleanup_id: UUID) -> None:
        """A dry run of the command leaves nothing behind that could be started later."""
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups

        with self._at.engine.begin() as connection:
            cleanups.cancel(connection, LOCAL_OPERATOR, cleanup_id)

    def load(self, cleanup_id: UUID) -> CleanupJob:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups

        with self._at.engine.connect() as connection:
            return cleanups.load(connection, LOCAL_OPERATOR, cleanup_id)

    def kept(self, cleanup_id: UUID) -> list[CleanupEntry]:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups

        with self._at.engine.connect() as connection:
            return cleanups.list_entries(connection, LOCAL_OPERATOR, cleanup_id, "kept", limit=_NAMED)

    def _drive(self, cleanup_id: UUID, doorbell: UUID) -> None:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.cleanups import service as cleanups
        from archiver.cleanups.workflow import CLEANUP, CLEANUP_CHECK
        from archiver.secrets import credentials_keyring
        from archiver.workflows.advance import drive
        from archiver.workflows.definition import registry
        from archiver.workflows.step_run import WorkflowResources

        workflows = registry(CLEANUP_CHECK, CLEANUP)
        keyring = credentials_keyring(self._at.settings)
        resources = WorkflowResources(self._at.settings, self._at.engine, self._at.archive, keyring, workflows)
        with self._at.engine.connect() as connection:
            run_id = cleanups.run_of(connection, cleanup_id)

        def show() -> None:
            job = self.load(cleanup_id)
            self._advance(job.deleted + job.gone + job.kept, job.messages)

        try:
            drive(resources, run_id, doorbell, show)
        except KeyboardInterrupt:
            with self._at.engine.begin() as connection:
                cleanups.cancel(connection, LOCAL_OPERATOR, cleanup_id)
            drive(resources, run_id, doorbell, show)


def _print(job: CleanupJob, kept: list[CleanupEntry], *, json: bool) -> None:
    if json:
        reasons = [{"id": str(one.message_id), "reason": one.reason} for one in kept]
        print_json({**asdict(job), "kept_messages": reasons})
        return
    old = quantity(job.messages, "message")
    console.print(f"{old} of {job.source_name} older than {job.after_days} days: {job.ready:,} may be deleted.", markup=False)
    if job.deleted or job.gone:
        console.print(f"{quantity(job.deleted, 'message')} moved to the trash; {job.gone:,} were no longer there.")
    counted: dict[str, int] = {}
    for one in kept:
        counted[one.reason or ""] = counted.get(one.reason or "", 0) + 1
    for reason, count in counted.items():
        console.print(f"kept: {count:,} × {reason}", markup=False)
