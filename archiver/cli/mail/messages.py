"""`show`, `export`, `delete`: what can be done with archived messages."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from archiver.cli.mail.exports import ExportRequest, parse_size, write_export
from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.cli.terminal.zone import local_zone
from archiver.errors import UsageError
from archiver.quantity import quantity

if TYPE_CHECKING:  # takes long to load
    from archiver.exports.selection import PackageOptions
    from archiver.retention.delete import Deleted


def show(
    message: Annotated[UUID, typer.Argument(metavar="ID", help="The message's id.")],
    raw: Annotated[bool, typer.Option("--raw", help="Print only the original bytes.")] = False,
    json: Json = False,
) -> None:
    """Show a message and where it is stored, or with --raw its original bytes."""
    from archiver.access import audit
    from archiver.access.principal import LOCAL_OPERATOR
    from archiver.reading.lookup import message_summary, raw_message

    with archive_for("show") as at:
        audit.record_look(at.engine, LOCAL_OPERATOR, "message.downloaded" if raw else "message.read", "message", message)
        if raw:
            for piece in raw_message(at.engine, at.archive, message):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        summary = message_summary(at.engine, message)
    if json:
        print_json(summary)
        return
    copies, variants = summary.pop("copies"), summary.pop("variants")
    for name, value in summary.items():
        console.print(f"{name:12} {value if value is not None else '-'}", markup=False)
    for copy in copies:
        how = " (submitted through the API)" if copy["handed_in"] else ""
        console.print(f"{'copy':12} {copy['mailbox']} {copy['folder']} {' '.join(copy['labels'])}{how}", markup=False)
    for variant in variants:
        console.print(f"{'variant':12} {variant}", markup=False)


_OUTPUT_FORMATS = ("zip", "mbox", "maildir", "csv", "pdf")
_OUTPUT_SUFFIXES = {".mbox": "mbox", ".csv": "csv"}


def export(
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Export what this query finds; words must match exactly.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write, or the folder of a Maildir.")
    ] = None,
    package: Annotated[Path | None, typer.Option(help="Write zip files of limited size to this folder.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Export all messages.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="Export one mailbox, by address or id.")] = None,
    folder: Annotated[str | None, typer.Option(help="With --mailbox: one of its folders.")] = None,
    kind: Annotated[str, typer.Option("--format", help="zip (.eml files), mbox, maildir, csv, or pdf (a zip file).")] = "",
    layout: Annotated[str, typer.Option(help="Of .eml files: folders (default of a package) or dates (default of -o).")] = "",
    volume_size: Annotated[str, typer.Option(help="Of a package: the size of its zip files, such as 650M.")] = "2G",
    json: Json = False,
) -> None:
    """Write the original messages to a zip file, an mbox file or a Maildir, with a signed manifest.

    `archiver verify-export` checks it, and `archiver import` reads it back: every byte, with folders, flags and labels.
    Exits with 3 if some messages could not be read; the manifest names them.
    """
    if everything + (mailbox is not None) + bool(query and query.strip()) != 1:
        raise UsageError("name what to export: a QUERY, --all, or --mailbox ADDRESS")
    if folder is not None and mailbox is None:
        raise UsageError("--folder needs --mailbox ADDRESS")
    target = output or package
    if target is None or (output and package):
        raise UsageError("name where to write: -o FILE, or --package FOLDER")
    options = _package_options(kind, layout, parse_size(volume_size)) if package else _file_options(target, kind, layout)
    write_export(ExportRequest(query, mailbox, folder, options, target, is_package=package is not None), json=json)


def _package_options(kind: str, layout: str, volume_bytes: int) -> PackageOptions:
    from archiver.exports.selection import PackageOptions

    return PackageOptions("eml" if kind in ("", "zip") else kind, layout or "folders", volume_bytes)


def _file_options(target: Path, kind: str, layout: str) -> PackageOptions:
    """One file, as large as it has to be."""
    from archiver.exports.selection import FLAT, UNLIMITED_BYTES, PackageOptions

    kind = kind or _OUTPUT_SUFFIXES.get(target.suffix, "zip")
    if kind not in _OUTPUT_FORMATS:
        raise UsageError(f"--format={kind}: expected one of {', '.join(_OUTPUT_FORMATS)}")
    is_zip = kind in ("zip", "pdf")
    return PackageOptions("eml" if kind == "zip" else kind, (layout if is_zip else "") or FLAT, UNLIMITED_BYTES)


def delete(
    reason: Annotated[str, typer.Option(help="Why. The reason is stored with the deletion.")],
    what: Annotated[
        str | None,
        typer.Argument(metavar="[ID | QUERY]", help="A message id, or a query; words must match exactly."),
    ] = None,
    mailbox: Annotated[str | None, typer.Option(help="Delete all mail of one mailbox, by address or id.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Delete permanently. No sync or import brings the messages back; `archiver compact` frees the space.

    Mail that is on hold or kept by a policy stays; exits with 3 if there was some.
    """
    from archiver.reading.lookup import find_mailbox
    from archiver.retention.delete import Deleted, delete_mailbox_mail
    from archiver.retention.expiry import find_expiring
    from archiver.search.service import open_search

    if bool(what and what.strip()) == (mailbox is not None):
        raise UsageError("name what to delete: a message id, a QUERY, or --mailbox ADDRESS")
    with archive_for("delete") as at:
        ids = []
        if what is not None:
            ids = _as_id(what) or list(open_search(at.settings, at.engine, find_expiring).message_ids(what, zone=local_zone()))
        if not yes:
            count = quantity(len(ids), "message") if mailbox is None else f"all mail of {mailbox}"
            typer.confirm(f"Permanently delete {count}?", abort=True, err=True)
        if mailbox is not None:
            done = delete_mailbox_mail(at.engine, at.archive, find_mailbox(at.engine, mailbox), reason)
        else:
            done = sum((_delete_one(at, message, reason, alone=len(ids) == 1) for message in ids), Deleted())
    if json:
        print_json(asdict(done))
    else:
        console.print(f"Deleted {quantity(done.copies, 'copy')} and {quantity(done.messages, 'message')}.")
        if done.held:
            console.print(f"{quantity(done.held, 'copy')} stay ({', '.join(done.holds)}).", style="yellow", markup=False)
    raise typer.Exit(3 if done.held else 0)


def _delete_one(at: OpenArchive, message: UUID, reason: str, *, alone: bool) -> Deleted:
    """Of several messages, those that are protected are counted and stay."""
    from archiver.retention.delete import Deleted, delete_message
    from archiver.retention.holds import OnHold, names_on_message

    try:
        return delete_message(at.engine, at.archive, message, reason)
    except OnHold:
        if alone:
            raise
        with at.engine.connect() as connection:
            return Deleted(held=1, holds=tuple(f"on hold: {name}" for _, name in names_on_message(connection, message)))


def _as_id(text: str) -> list[UUID]:
    try:
        return [UUID(text)]
    except ValueError:
        return []
