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
from archiver.cli.zone import local_zone
from archiver.errors import UsageError


def show(
    message: Annotated[UUID, typer.Argument(metavar="ID", help="The message's id.")],
    raw: Annotated[bool, typer.Option("--raw", help="The original bytes, and nothing else.")] = False,
    json: Json = False,
) -> None:
    """Show a message: what it is and where it lies, or with --raw its original bytes."""
    from archiver.services import audit
    from archiver.services.export import message_summary, raw_message
    from archiver.services.principal import LOCAL_OPERATOR

    with opened("show") as at:
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
        how = " (handed in through the API)" if copy["handed_in"] else ""
        console.print(f"{'copy':12} {copy['mailbox']} {copy['folder']} {' '.join(copy['labels'])}{how}", markup=False)
    for variant in variants:
        console.print(f"{'variant':12} {variant}", markup=False)


def export(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="What a search finds; words have to be exact.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    mailbox: Annotated[str | None, typer.Option(help="One mailbox, by address or id.")] = None,
    kind: Annotated[str, typer.Option("--format", help="zip (one .eml a message) or mbox.")] = "",
    json: Json = False,
) -> None:
    """Write messages, as they came in, into a zip or an mbox, with a manifest of their SHA-256 values."""
    from archiver.services import audit, room
    from archiver.services.export import export as run
    from archiver.services.export import find_mailbox
    from archiver.services.principal import LOCAL_OPERATOR
    from archiver.services.search import open_search

    if everything + (mailbox is not None) + bool(query and query.strip()) != 1:
        raise UsageError("say what to export: a QUERY, --all, or --mailbox ADDRESS")
    kind = kind or ("mbox" if output.suffix == ".mbox" else "zip")
    if kind not in ("zip", "mbox"):
        raise UsageError(f"--format={kind}: expected zip or mbox")
    with opened("export") as at:
        audit.record_look(at.engine, LOCAL_OPERATOR, "export.written", "export", query=query, mailbox=mailbox, format=kind)
        ids = open_search(at.settings, at.engine).message_ids(query, zone=local_zone()) if query else None
        spend = room.spender(at.settings, output)
        box = find_mailbox(at.engine, mailbox) if mailbox else None
        done = run(at.engine, at.archive, output, kind, box, ids, spend=spend)
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.messages:,} message(s), {done.bytes / 1e6:,.1f} MB in {output}.")
        for failed in done.failed:
            console.print(f"[red]not exported[/] {failed['id']}: {failed['error']}")
    raise typer.Exit(1 if done.failed else 0)


def delete(
    reason: Annotated[str, typer.Option(help="Why. It is kept with the deletion.")],
    what: Annotated[
        str | None,
        typer.Argument(metavar="[ID | QUERY]", help="A message's id, or what a search finds; words have to be exact."),
    ] = None,
    mailbox: Annotated[str | None, typer.Option(help="All mail of one mailbox, by address or id.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete for good. The next sync or import does not bring it back; `archiver compact` gives the space back."""
    from archiver.services.delete import Deleted, delete_mailbox_mail, delete_message
    from archiver.services.export import find_mailbox
    from archiver.services.search import open_search

    if bool(what and what.strip()) == (mailbox is not None):
        raise UsageError("say what to delete: a message's id, a QUERY, or --mailbox ADDRESS")
    with opened("delete") as at:
        ids = []
        if what is not None:
            ids = _as_id(what) or list(open_search(at.settings, at.engine).message_ids(what, zone=local_zone()))
        if not yes:
            count = f"{len(ids):,} message(s)" if mailbox is None else f"all mail of {mailbox}"
            typer.confirm(f"Delete {count} for good?", abort=True, err=True)
        if mailbox is not None:
            done = delete_mailbox_mail(at.engine, at.archive, find_mailbox(at.engine, mailbox), reason)
        else:
            each = [delete_message(at.engine, at.archive, message, reason) for message in ids]
            done = Deleted(sum(one.copies for one in each), sum(one.messages for one in each))
    if json:
        print_json(asdict(done))
    else:
        console.print(f"{done.copies:,} copies deleted, {done.messages:,} message(s) with them.")


def _as_id(given: str) -> list[UUID]:
    try:
        return [UUID(given)]
    except ValueError:
        return []
