"""`restore --to`: mail back into mailboxes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from archiver.cli.terminal.archive import OpenArchive, archive_for, progress_bar
from archiver.cli.terminal.output import console, print_json
from archiver.errors import ArchiverError, UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:
    from uuid import UUID

    from archiver.exports.selection import Selection
    from archiver.restores.destination import RestoreDestination
    from archiver.restores.rows import RestoreJob

_NAMED = 1000
"""Messages that could not be restored are named, up to this number."""


@dataclass(frozen=True, slots=True)
class WantedMail:
    query: str | None
    everything: bool
    mailbox: str | None
    folder: str | None

    def check(self) -> None:
        if sum((self.query is not None, self.everything, self.mailbox is not None)) != 1:
            raise UsageError("name what to restore: a query, --all, or --mailbox ADDRESS")
        if self.folder is not None and self.mailbox is None:
            raise UsageError("--folder needs --mailbox")

    def selection(self, at: OpenArchive) -> Selection:
        from archiver.exports.selection import Selection
        from archiver.reading.lookup import find_mailbox

        mailbox_id = find_mailbox(at.engine, self.mailbox) if self.mailbox else None
        return Selection(self.query, mailbox_id, self.folder, everything=self.everything)


def restore_mail(
    wanted: WantedMail, to: str, *, below: str | None, dry_run: bool, password_file: Path | None, json: bool
) -> None:
    """Runs in this process. If it dies, the workers finish what it began."""
    from archiver.restores.destination import parse_address

    wanted.check()
    is_mailbox = to.startswith("mailbox:")
    destination = None if is_mailbox else parse_address(to)
    password = _password(password_file) if destination is not None and destination.imap else None
    with archive_for("restore") as at, progress_bar("comparing" if dry_run else "restoring", shown=not json) as advance:
        chosen = _mailbox(at, to) if destination is None else destination
        if below is not None:
            chosen = replace(chosen, below=below.strip("/"))
        job, failed = _Run(at, advance).run(wanted.selection(at), chosen, password, dry_run=dry_run)
    _print(job, failed, dry_run=dry_run, json=json)
    if job.error:
        raise ArchiverError(f"the restore stopped: {job.error}. Repeat the command to continue")
    raise typer.Exit(3 if job.refused else 0)


def _mailbox(at: OpenArchive, to: str) -> RestoreDestination:
    from archiver.reading.lookup import find_mailbox
    from archiver.restores.destination import RestoreDestination

    return RestoreDestination(mailbox_id=find_mailbox(at.engine, to.removeprefix("mailbox:")))


@dataclass(slots=True)
class _Run:
    at: OpenArchive
    advance: Any

    def run(
        self, selection: Selection, destination: RestoreDestination, password: str | None, *, dry_run: bool
    ) -> tuple[RestoreJob, list[dict[str, str]]]:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.db.ids import uuid7
        from archiver.restores import service as restores
        from archiver.secrets import credentials_keyring

        keyring, doorbell = credentials_keyring(self.at.settings), uuid7()
        options: dict[str, Any] = {"password": password, "compares": dry_run, "local_doorbell": doorbell}
        with self.at.engine.begin() as connection:
            restore_id = restores.request(
                connection, self.at.settings, keyring, LOCAL_OPERATOR, selection, destination, **options
            )
        self._drive(restore_id, doorbell)
        if not dry_run and self._load(restore_id).can_start:
            doorbell = uuid7()
            with self.at.engine.begin() as connection:
                restores.start(connection, LOCAL_OPERATOR, restore_id, local_doorbell=doorbell)
            self._drive(restore_id, doorbell)
        with self.at.engine.connect() as connection:
            refused = restores.report(connection, LOCAL_OPERATOR, restore_id, "refused", limit=_NAMED)
        return self._load(restore_id), [{"id": str(one.message_id), "error": one.reason or ""} for one in refused]

    def _load(self, restore_id: UUID) -> RestoreJob:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.restores import service as restores

        with self.at.engine.connect() as connection:
            return restores.load(connection, LOCAL_OPERATOR, restore_id)

    def _drive(self, restore_id: UUID, doorbell: UUID) -> None:
        from archiver.access.principal import LOCAL_OPERATOR
        from archiver.restores import service as restores
        from archiver.restores.workflow import RESTORE, RESTORE_CHECK
        from archiver.secrets import credentials_keyring
        from archiver.workflows.advance import drive
        from archiver.workflows.definition import registry
        from archiver.workflows.step_run import WorkflowResources

        keyring = credentials_keyring(self.at.settings)
        workflows = registry(RESTORE_CHECK, RESTORE)
        resources = WorkflowResources(self.at.settings, self.at.engine, self.at.archive, keyring, workflows)
        with self.at.engine.connect() as connection:
            run_id = restores.run_of(connection, restore_id)

        def show() -> None:
            job = self._load(restore_id)
            self.advance(job.done, job.total)

        try:
            drive(resources, run_id, doorbell, show)
        except KeyboardInterrupt:
            with self.at.engine.begin() as connection:
                restores.cancel(connection, LOCAL_OPERATOR, restore_id)
            drive(resources, run_id, doorbell, show)


def _print(job: RestoreJob, failed: list[dict[str, str]], *, dry_run: bool, json: bool) -> None:
    if json:
        counts = {"appended": job.restored, "present": job.present, "failed": failed}
        more = {"would_restore": job.absent} if dry_run else {}
        print_json({**counts, **more, "refused": job.refused, "state": job.state, "error": job.error})
        return
    if dry_run:
        console.print(f"{quantity(job.absent, 'message')} would be restored, {job.present:,} already there.")
    else:
        restored = quantity(job.restored, "message")
        console.print(f"{restored} restored, {job.present:,} already there, {job.refused:,} failed.")
    for one in failed:
        console.print(f"not restored: {one['id']}: {one['error']}", markup=False)


def _password(file: Path | None) -> str:
    """From a file, the environment, the terminal, or a line of standard input; never from an argument, which others can see."""
    if file is not None:
        try:
            return file.read_text().rstrip("\n")
        except OSError as error:
            raise UsageError(f"--password-file {file}: can't be read ({error.strerror})") from error
    given = os.environ.get("ARCHIVER_RESTORE_PASSWORD")
    if given:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")
