"""`show`, `export`, `delete`: one message, many of them, and none of them any more."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from archiver.cli.archive import opened
from archiver.cli.output import Json, console, print_json
from archiver.errors import UsageError


def show(
    message: Annotated[UUID, typer.Argument(metavar="ID", help="The message's id.")],
    raw: Annotated[bool, typer.Option("--raw", help="The original bytes, and nothing else.")] = False,
    json: Json = False,
) -> None:
    """Show a message: what it is and where it lies, or with --raw its original bytes."""
    from archiver.services.export import message_summary, raw_message

    with opened("show") as at:
        if raw:
            for piece in raw_message(at.engine, at.archive, message):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        summary = message_summary(at.engine, message)
    if json:
        print_json(summary)
        return
    copies = summary.pop("copies")
    for name, value in summary.items():
        console.print(f"{name:12} {value if value is not None else '-'}", markup=False)
    for copy in copies:
        console.print(f"{'copy':12} {copy['mailbox']} {copy['folder']} {' '.join(copy['labels'])}", markup=False)


def export(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="One mailbox, by address or id.")] = None,
    kind: Annotated[str, typer.Option("--format", help="zip (one .eml a message) or mbox.")] = "",
    json: Json = False,
) -> None:
    """Write messages, as they came in, into a zip or an mbox, with a manifest of their SHA-256 values."""
    from archiver.services.export import export as run
    from archiver.services.export import find_mailbox

    if everything == (mailbox is not None):
        raise UsageError("say what to export: --all, or --mailbox ADDRESS")
    kind = kind or ("mbox" if output.suffix == ".mbox" else "zip")
    if kind not in ("zip", "mbox"):
        raise UsageError(f"--format={kind}: expected zip or mbox")
    with opened("export") as at:
        done = run(at.engine, at.archive, output, kind, find_mailbox(at.engine, mailbox) if mailbox else None)
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.messages:,} message(s), {done.bytes / 1e6:,.1f} MB in {output}.")
        for failed in done.failed:
            console.print(f"[red]not exported[/] {failed['id']}: {failed['error']}")
    raise typer.Exit(1 if done.failed else 0)


def delete(
    reason: Annotated[str, typer.Option(help="Why. It is kept with the deletion.")],
    message: Annotated[UUID | None, typer.Argument(metavar="[ID]", help="The message's id.")] = None,
    mailbox: Annotated[str | None, typer.Option(help="All mail of one mailbox, by address or id.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete for good. The next sync or import does not bring it back; `archiver compact` gives the space back."""
    from archiver.services.delete import delete_mailbox_mail, delete_message
    from archiver.services.export import find_mailbox

    if (message is None) == (mailbox is None):
        raise UsageError("say what to delete: a message's id, or --mailbox ADDRESS")
    if not yes:
        typer.confirm(f"Delete {message or f'all mail of {mailbox}'} for good?", abort=True, err=True)
    with opened("delete") as at:
        if message is not None:
            done = delete_message(at.engine, at.archive, message, reason)
        else:
            done = delete_mailbox_mail(at.engine, at.archive, find_mailbox(at.engine, str(mailbox)), reason)
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.copies:,} copies deleted, {done.messages:,} message(s) with them.")
