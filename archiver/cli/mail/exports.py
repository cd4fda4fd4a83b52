"""What `export` does, and `verify-export` and `signing-key`: exports with a signed manifest, and how to check them."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archiver.cli.terminal.archive import OpenArchive, archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.cli.terminal.zone import local_zone
from archiver.errors import ArchiverError, UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:
    from uuid import UUID

    from archiver.exports.selection import PackageOptions, Selection
    from archiver.workflows.step_run import WorkflowResources

_SIZE = re.compile(r"(\d{1,12})\s*([KMGT]?)B?", re.IGNORECASE)
_SHOW_SECONDS = 0.3
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(given: str) -> int:
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise UsageError(f"--volume-size={given}: expected a size such as 650M or 2G")
    return int(found[1]) * _UNITS[found[2].upper()]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What `archiver export` was asked for."""

    query: str | None
    mailbox: str | None
    folder: str | None
    options: PackageOptions
    target: Path
    is_package: bool

    def check(self) -> None:
        """Before anything is opened."""
        self.options.check()
        is_folder = self.is_package or self.options.format == "maildir"
        if self.target.exists() and is_folder and (not self.target.is_dir() or any(self.target.iterdir())):
            raise UsageError(f"{self.target} exists and is not an empty folder: name another one")
        if self.target.is_dir() and not is_folder:
            raise UsageError(f"{self.target} is a folder: name a file")
        if not self.target.absolute().parent.is_dir():
            raise UsageError(f"{self.target.absolute().parent} is not a folder: create it first")


def write_export(request: ExportRequest, *, json: bool) -> None:
    """Runs the export in this process. If it dies, the workers finish what it began, or roll it back."""
    request.check()
    with archive_for("export") as at, progress_bar("exporting", shown=not json) as advance:
        export_id = _run(at, request, advance)
        found = _outcome(at, export_id)
    if found["state"] != "done":
        raise ArchiverError(f"the export failed: {found['error']}")
    report = _report_package if request.is_package else _report_file
    report(request, found, json=json)
    raise typer.Exit(3 if found["failed"] else 0)


def _report_package(request: ExportRequest, found: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json({**found, "folder": str(request.target)})
        return
    console.print(f"Exported {quantity(found['messages'], 'message')} to {request.target}, signed and read back.", markup=False)
    console.print(f"Check it with: archiver verify-export {request.target}", markup=False)


def _report_file(request: ExportRequest, found: dict[str, Any], *, json: bool) -> None:
    from archiver.exports.volume_reading import missing_messages

    failed = missing_messages(request.target) if found["failed"] else []
    if json:
        print_json({"messages": found["messages"], "bytes": found["bytes"], "failed": failed})
        return
    size = f"{found['bytes'] / 1e6:,.1f} MB"
    console.print(f"Exported {quantity(found['messages'], 'message')}, {size}, to {request.target}.", markup=False)
    for one in failed:
        console.print(f"not exported: {one['id']}: {one['error']}", style="red", markup=False)


def _selection(at: OpenArchive, request: ExportRequest) -> Selection:
    """A query that can't be answered is refused now."""
    from archiver.exports.selection import Selection
    from archiver.reading.lookup import find_mailbox
    from archiver.retention.expiry import find_expiring
    from archiver.search.service import open_search

    zone = local_zone()
    if request.query is not None:
        open_search(at.settings, at.engine, find_expiring).message_ids(request.query, zone=zone)
        return Selection(request.query, zone=getattr(zone, "key", "UTC"))
    if request.mailbox is not None:
        return Selection(mailbox_id=find_mailbox(at.engine, request.mailbox), folder=request.folder)
    return Selection(everything=True)


def _run(at: OpenArchive, request: ExportRequest, advance: Callable[[int, int], None]) -> UUID:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.db.ids import uuid7
    from archiver.exports import service as exports
    from archiver.exports.workflow import EXPORT
    from archiver.maintenance.snapshot import ensure_signing_key
    from archiver.secrets import credentials_keyring
    from archiver.workflows.definition import registry
    from archiver.workflows.step_run import WorkflowResources

    keyring, doorbell = credentials_keyring(at.settings), uuid7()
    ensure_signing_key(at.engine, at.archive, keyring)
    selection, target = _selection(at, request), request.target.absolute()
    place = {"folder" if request.is_package else "output": target}
    with at.engine.begin() as connection:
        export_id = exports.request(
            connection, at.settings, LOCAL_OPERATOR, selection, request.options, **place, local_doorbell=doorbell
        )
    _drive(WorkflowResources(at.settings, at.engine, at.archive, keyring, registry(EXPORT)), export_id, doorbell, advance)
    return export_id


def _drive(resources: WorkflowResources, run_id: UUID, doorbell: UUID, advance: Callable[[int, int], None]) -> None:
    """In a thread, so that this one can show the progress, and cancel the run when the user interrupts it."""
    from archiver.workflows import service as workflows
    from archiver.workflows.advance import drive

    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(drive, resources, run_id, doorbell)
        while not driven.done():
            try:
                wait([driven], _SHOW_SECONDS)
                with resources.engine.connect() as connection:
                    now = workflows.progress(connection, run_id)
                advance(now.done, now.total)
            except KeyboardInterrupt:
                with resources.engine.begin() as connection:
                    workflows.cancel(connection, run_id)
        driven.result()


def _outcome(at: OpenArchive, export_id: UUID) -> dict[str, Any]:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.exports import service as exports

    with at.engine.connect() as connection:
        item = exports.load(connection, LOCAL_OPERATOR, export_id)
    names = ("id", "state", "format", "messages", "bytes", "failed", "error", "files")
    return {name: value for name, value in asdict(item).items() if name in names}


def verify_export(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="Volumes or their folder; an mbox or Maildir."),
    ],
    key: Annotated[Path | None, typer.Option(help="The archive's public key, as `archiver signing-key` prints it.")] = None,
    json: Json = False,
) -> None:
    """Check that an export is what the archive signed: nothing changed, renamed, left out or added. Needs no archive.

    Without --key, only the export's own key is used: compare its fingerprint with the archive's. Exits with 1 if something is
    wrong.
    """
    from archiver.evidence.signing import read_public_pem
    from archiver.exports.verifying import verify_export as verify

    expected = read_public_pem(_read(key)) if key else None
    with progress_bar("checking", shown=not json) as advance:
        check = verify(paths, expected, advance)
    if json:
        print_json({**asdict(check), "ok": not check.problems})
    else:
        for problem in check.problems:
            console.print(problem, style="red", markup=False)
        if not check.problems:
            console.print(f"{quantity(check.messages, 'message')}: everything is as it was signed.")
        console.print(f"Signed with the key {check.key_id or '(none)'}{'' if key else '; use --key to check whose it is'}.")
        if check.missing:
            console.print(f"The export itself names {quantity(check.missing, 'message')} that could not be exported.")
    raise typer.Exit(1 if check.problems else 0)


def signing_key(json: Json = False) -> None:
    """Print the archive's public key, with which others check exports."""
    from archiver.evidence.signing import public_keys, public_pem
    from archiver.maintenance.snapshot import ensure_signing_key
    from archiver.secrets import credentials_keyring

    with archive_for("signing-key") as at:
        ensure_signing_key(at.engine, at.archive, credentials_keyring(at.settings))
        with at.engine.connect() as connection:
            keys = public_keys(connection)
    if json:
        print_json(
            {"keys": [{"id": one.id, "pem": public_pem(one.public_bytes), "created_at": one.created_at} for one in keys]}
        )
        return
    for one in keys:
        console.print(f"# {one.id}, created {one.created_at:%Y-%m-%d}", markup=False, highlight=False)
        console.print(public_pem(one.public_bytes), markup=False, highlight=False, end="")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"--key={path}: {error.strerror}") from error
