"""`archiver erasure …`: erase a person's mail on request."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.maintenance.erasure.check import receipt_faults
from archiver.maintenance.retention import erase
from archiver.quantity import quantity
from archiver.retention import erasures
from archiver.retention.approval import needs_second_person
from archiver.retention.erasures import Erasure, NewErasure
from archiver.secrets import credentials_keyring

app = typer.Typer(no_args_is_help=True, help="Erase a person's mail on request (GDPR, article 17).")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The case reference, or the id.")]
Reason = Annotated[str, typer.Option(help="Why. The reason is stored, and part of the receipt.")]
Messages = Annotated[list[UUID], typer.Argument(metavar="ID…", help="The ids of messages.")]


@app.command("request")
def request(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A case reference, which stays; not the person's name.")],
    reason: Reason,
    address: Annotated[list[str] | None, typer.Option(help="An address of the person; repeat it for more.")] = None,
    term: Annotated[
        list[str] | None, typer.Option(help="A name, or other words that identify the person; repeat it for more.")
    ] = None,
    json: Json = False,
) -> None:
    """Search for all mail of a person. Nothing is erased before it is reviewed and approved."""
    with archive_for("erasure") as at:
        found = erasures.request(at.engine, LOCAL_OPERATOR, NewErasure(name, reason, address or (), term or ()))
        erase(at.settings, at.engine, at.archive, credentials_keyring(at.settings))
    _show(str(found.id), json=json)


@app.command("search")
def search(name: Name, json: Json = False) -> None:
    """Search again, for mail that has arrived since."""
    with archive_for("erasure") as at:
        with at.engine.begin() as connection:
            erasures.search_again(connection, LOCAL_OPERATOR, erasures.load(connection, name))
        erase(at.settings, at.engine, at.archive, credentials_keyring(at.settings))
    _show(name, json=json)


@app.command("list")
def list_(json: Json = False) -> None:
    """List all erasures, newest first."""
    with archive_for("erasure") as at, at.engine.connect() as connection:
        found = erasures.list_erasures(connection)
    if json:
        return print_json({"erasures": [_fields(one) for one in found]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("case", "requested", "state", "copies", "messages"):
        table.add_column(heading)
    for one in found:
        table.add_row(*map(Text, (one.name, f"{one.created_at:%Y-%m-%d}", one.state, f"{one.copies:,}", f"{one.messages:,}")))
    return console.print(table) if found else console.print("No erasure was requested.")


@app.command("show")
def show(
    name: Name,
    messages: Annotated[bool, typer.Option("--messages", help="List what was found, and what keeps it.")] = False,
    json: Json = False,
) -> None:
    """Show an erasure: its state, what was found, and what stays."""
    _show(name, messages=messages, json=json)


def _show(name: str, *, messages: bool = False, json: bool) -> None:
    with archive_for("erasure") as at, at.engine.begin() as connection:
        erasure = erasures.load(connection, name)
        counts = erasures.count(connection, erasure)
        found = erasures.found_messages(connection, erasure, limit=1_000_000) if messages else []
        kept = erasures.what_keeps(connection, at.engine, at.archive, [one.message_id for one in found]) if found else {}
    if json:
        listed = [{**asdict(one), "kept_by": kept.get(one.message_id, ())} for one in found]
        return print_json({**_fields(erasure), **asdict(counts), **({"found_messages": listed} if messages else {})})
    console.print(f"{erasure.name}: {erasure.state}{f' ({erasure.error})' if erasure.error else ''}", markup=False)
    if erasure.deleted_at is None:
        people = f"{counts.in_people:,} as sender or recipient"
        console.print(f"Found {quantity(counts.found, 'message')} ({people}); {counts.excluded:,} excluded in the review.")
        if erasure.unread:
            console.print(f"{quantity(erasure.unread, 'message')} could not be read completely in the search.")
    else:
        console.print(f"Erased {quantity(erasure.copies, 'copy')}, {quantity(erasure.messages, 'message')}.")
        for why, count in erasure.kept.items():
            console.print(f"  {quantity(count, 'copy')} stay: {why}", markup=False)
    for one in found:
        why = "; ".join(kept.get(one.message_id, ())) or (f"excluded: {one.excluded_reason}" if one.excluded_reason else "")
        where = "people" if one.in_people else "text"
        line = f"{one.message_id} {one.sort_at:%Y-%m-%d} {where:6} {one.sender or '-'}: {one.subject or '-'}"
        console.print(f"{line} [{why}]" if why else line, markup=False, soft_wrap=True)
    return None


@app.command("exclude")
def exclude(name: Name, messages: Messages, reason: Reason) -> None:
    """Leave messages out of an erasure, such as those of another person with the same name."""
    _exclude(name, messages, reason)


@app.command("include")
def include(name: Name, messages: Messages) -> None:
    """Erase messages after all that were excluded."""
    _exclude(name, messages, None)


def _exclude(name: str, messages: list[UUID], reason: str | None) -> None:
    with archive_for("erasure") as at, at.engine.begin() as connection:
        erasures.exclude(connection, LOCAL_OPERATOR, erasures.load(connection, name), messages, reason)
    _show(name, json=False)


@app.command("approve")
def approve(
    name: Name, yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False, json: Json = False
) -> None:
    """Erase what was found and is not excluded. What a hold or a policy keeps stays."""
    if not yes:
        typer.confirm("Permanently erase this mail?", abort=True, err=True)
    with archive_for("erasure") as at:
        with at.engine.begin() as connection:
            second = needs_second_person(connection, at.settings)
            erasures.approve(connection, LOCAL_OPERATOR, erasures.load(connection, name), second_person=second)
        erase(at.settings, at.engine, at.archive, credentials_keyring(at.settings))
    _show(name, json=json)


@app.command("reject")
def reject(name: Name, json: Json = False) -> None:
    """Reject, or withdraw, an erasure that is not approved yet."""
    with archive_for("erasure") as at, at.engine.begin() as connection:
        erasures.reject(connection, LOCAL_OPERATOR, erasures.load(connection, name))
    _show(name, json=json)


@app.command("run")
def run(json: Json = False) -> None:
    """Go on with all erasures now, instead of waiting for the schedule."""
    with archive_for("erasure") as at:
        finished = erase(at.settings, at.engine, at.archive, credentials_keyring(at.settings))
    if json:
        return print_json({"finished": finished})
    return console.print(f"Finished {quantity(len(finished), 'erasure')}.")


@app.command("receipt")
def receipt(
    name: Name,
    listed: Annotated[bool, typer.Option("--list", help="Print what was erased: mailbox and SHA-256, one line each.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the signature and the hash of the list.")] = False,
) -> None:
    """Print the signed receipt of a finished erasure, exactly as it was signed."""
    with archive_for("erasure") as at, at.engine.connect() as connection:
        erasure = erasures.load(connection, name)
        lines = list(erasures.erased_units(connection, erasure)) if listed else []
        faults = receipt_faults(connection, erasure) if verify else []
    if listed:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    elif verify:
        for fault in faults:
            console.print(fault, style="red", markup=False)
        console.print("The receipt is genuine." if not faults else "The receipt is not valid.")
        raise typer.Exit(1 if faults else 0)
    else:
        sys.stdout.write((erasure.receipt or "there is no receipt yet") + "\n")


def _fields(erasure: Erasure) -> dict[str, Any]:
    return {**asdict(erasure), "state": erasure.state}
