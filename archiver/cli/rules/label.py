"""`archiver label …`: retention labels on messages."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, time
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.scope import EVERYTHING
from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.cli.terminal.zone import local_zone_name
from archiver.errors import UsageError
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity
from archiver.retention import holds, labels
from archiver.retention.keeping import explain
from archiver.retention.labels import Labelling, LabelRequest, RetentionLabel

app = typer.Typer(no_args_is_help=True, help="Put retention labels on messages: kept until a date, personal, or your own.")

Name = Annotated[str, typer.Argument(metavar="LABEL", help="The label's name, such as keep-until, personal or invoice-8y.")]
Ids = Annotated[list[UUID], typer.Argument(metavar="ID…", help="Messages, by their ids.")]


@app.command("list")
def list_(
    retired: Annotated[bool, typer.Option(help="Also those that can't be put on further messages.")] = False,
    json: Json = False,
) -> None:
    """List the labels, and on how many messages they are."""
    with archive_for("label") as at, at.engine.connect() as connection:
        found, uses = labels.list_labels(connection, retired=retired), labels.count_uses(connection)
    if json:
        print_json([{**asdict(one), "messages": uses.get(one.name, 0)} for one in found])
        return
    table = Table("name", "title", "messages", "effect")
    for one in found:
        table.add_row(Text(one.name), Text(one.title), f"{uses.get(one.name, 0):,}", _effect(one))
    console.print(table)


@app.command("define")
def define(
    name: Name,
    title: Annotated[str, typer.Option(help="What people read.")],
    hide_from_auditors: Annotated[bool, typer.Option(help="Auditors do not see messages with this label.")] = False,
    lock: Annotated[bool, typer.Option(help="Once on a message, the label stays; a date can only move on.")] = False,
    json: Json = False,
) -> None:
    """Add a label, or change one. A lock on a label that is in use can't be undone."""
    with archive_for("label") as at:
        with at.engine.begin() as connection:
            made = labels.define(connection, LOCAL_OPERATOR, name, title, hides=hide_from_auditors, locks=lock)
        save_config(at.engine, at.archive)
    print_json(asdict(made)) if json else console.print(f"The label {made.name} is defined.", markup=False)


@app.command("retire")
def retire(name: Name, json: Json = False) -> None:
    """Stop a label from being put on further messages. It stays where it is."""
    with archive_for("label") as at:
        with at.engine.begin() as connection:
            made = labels.retire(connection, LOCAL_OPERATOR, name)
        save_config(at.engine, at.archive)
    print_json(asdict(made)) if json else console.print(f"The label {made.name} is retired.", markup=False)


@app.command("put")
def put(
    name: Name,
    message: Ids,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Keep the messages until the end of this day.")] = None,
    reason: Annotated[str, typer.Option(help="Why. It is stored with the label.")] = "",
    json: Json = False,
) -> None:
    """Put a label on messages. It is in force at once."""
    with archive_for("label") as at:
        changed = _labelling(at).put(LabelRequest(name, message, _end_of(until), reason))
    _report(changed, f"The label {name} was put on {quantity(changed, 'message')}.", json=json)


@app.command("remove")
def remove(name: Name, message: Ids, json: Json = False) -> None:
    """Remove a label from messages. Locked labels stay."""
    with archive_for("label") as at:
        changed = _labelling(at).remove(LabelRequest(name, message))
    _report(changed, f"The label {name} was removed from {quantity(changed, 'message')}.", json=json)


@app.command("show")
def show(message: Annotated[UUID, typer.Argument(metavar="ID", help="A message, by its id.")], json: Json = False) -> None:
    """Show until when a message is kept: its labels, policies and holds."""
    with archive_for("label") as at, at.engine.connect() as connection:
        found = labels.on_messages(connection, [message])
        kept = explain(connection, at.engine, message, None)
        held = [name for _, name in holds.names_on_message(connection, message)]
    if json:
        print_json({"labels": [asdict(one) for one in found], "policies": [asdict(one) for one in kept], "holds": held})
        return
    for label in found:
        until = f", kept until {label.keep_until:%Y-%m-%d}" if label.keep_until else ""
        console.print(f"label {label.name}{until}, by {label.set_by}", markup=False)
    for policy in kept:
        ends = {"kept until": policy.kept_until, "deleted from": policy.deleted_from}
        what = ", ".join(f"{name} {at:%Y-%m-%d}" for name, at in ends.items() if at is not None)
        console.print(f"{what} by {policy.name}{' (perhaps)' if policy.is_unclear else ''}", markup=False)
    for name in held:
        console.print(f"on hold: {name}", markup=False)
    if not (found or kept or held):
        console.print("Nothing keeps this message, and nothing deletes it.")


def _labelling(at: OpenArchive) -> Labelling:
    return Labelling(at.engine, at.archive, LOCAL_OPERATOR, EVERYTHING)


def _end_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise UsageError(f"--until {text}: expected a date such as 2033-04-01") from None
    return datetime.combine(day, time(23, 59, 59), ZoneInfo(local_zone_name()))


def _effect(label: RetentionLabel) -> str:
    effects = {
        "kept until a date": label.takes_date, "hidden from auditors": label.hides_from_auditors, "locked": label.is_locked,
        "retired": label.retired_at is not None,
    }  # fmt: skip
    return ", ".join(name for name, applies in effects.items() if applies)


def _report(changed: int, sentence: str, *, json: bool) -> None:
    print_json({"changed": changed}) if json else console.print(sentence, markup=False)
