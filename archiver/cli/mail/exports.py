"""`export --package`, `verify-export`, `signing-key`: packages with a signed manifest, and how to check them."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archiver.cli.terminal.archive import OpenArchive, archive_for, progress_bar
from archiver.cli.terminal.output import Json, console, print_json
from archiver.errors import ArchiverError, UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:
    from uuid import UUID

    from archiver.exports.selection import PackageOptions, Selection

_SIZE = re.compile(r"(\d{1,12})\s*([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(given: str) -> int:
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise UsageError(f"--volume-size={given}: expected a size such as 650M or 2G")
    return int(found[1]) * _UNITS[found[2].upper()]


def write_package(folder: Path, select: Any, options: PackageOptions, *, json: bool) -> None:
    """Runs the export in this process. If it dies, the workers finish what it began, or roll it back."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder: name another one for the package")
    options.check()
    with archive_for("export") as at, progress_bar("exporting", shown=not json) as advance:
        selection: Selection = select(at)
        export_id = _run(at, selection, options, folder.absolute(), advance)
        found = _outcome(at, export_id)
    if found["state"] != "done":
        raise ArchiverError(f"the export failed: {found['error']}")
    if json:
        print_json({**found, "folder": str(folder)})
    else:
        console.print(f"Exported {quantity(found['messages'], 'message')} to {folder}, signed and read back.", markup=False)
        console.print(f"Check it with: archiver verify-export {folder}", markup=False)
    raise typer.Exit(3 if found["failed"] else 0)


def _run(at: OpenArchive, selection: Selection, options: PackageOptions, folder: Path, advance: Any) -> UUID:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.db.ids import uuid7
    from archiver.exports import service as exports
    from archiver.exports.workflow import EXPORT
    from archiver.maintenance.snapshot import ensure_signing_key
    from archiver.secrets import credentials_keyring
    from archiver.workflows import service as workflows
    from archiver.workflows.advance import drive
    from archiver.workflows.definition import registry
    from archiver.workflows.step_run import WorkflowResources

    keyring, doorbell = credentials_keyring(at.settings), uuid7()
    ensure_signing_key(at.engine, at.archive, keyring)
    with at.engine.begin() as connection:
        export_id = exports.request(
            connection, at.settings, LOCAL_OPERATOR, selection, options, folder=folder, local_doorbell=doorbell
        )
    resources = WorkflowResources(at.settings, at.engine, at.archive, keyring, registry(EXPORT))

    def show() -> None:
        with at.engine.connect() as connection:
            now = workflows.progress(connection, export_id)
        advance(now.done, now.total)

    try:
        drive(resources, export_id, doorbell, show)
    except KeyboardInterrupt:
        with at.engine.begin() as connection:
            workflows.cancel(connection, export_id)
        drive(resources, export_id, doorbell, show)
    return export_id


def _outcome(at: OpenArchive, export_id: UUID) -> dict[str, Any]:
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.exports import service as exports

    with at.engine.connect() as connection:
        item = exports.load(connection, LOCAL_OPERATOR, export_id)
    names = ("id", "state", "format", "messages", "bytes", "failed", "error", "files")
    return {name: value for name, value in asdict(item).items() if name in names}


def verify_export(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="The volumes of an export, or the folder they are in.")],
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
