"""`archiver hold …`: mail that nothing deletes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table
from rich.text import Text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.alerts import custodian_notices
from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.cli.terminal.zone import local_zone_name
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity
from archiver.reading.lookup import find_mailbox
from archiver.retention import holds
from archiver.retention.approval import needs_second_person
from archiver.retention.holds import Hold, NewHold
from archiver.search.service import open_search

app = typer.Typer(no_args_is_help=True, help="Place legal holds on mail, which nothing deletes until they are released.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The hold's name, or its id.")]


@app.command("place")
def place(
    name: Annotated[str, typer.Argument(metavar="NAME", help='A name, such as "Case Lamp".')],
    reason: Annotated[str, typer.Option(help="Why. The reason is stored with the hold.")],
    mailbox: Annotated[list[str] | None, typer.Option(help="All mail of this mailbox, by address or id. Repeatable.")] = None,
    person: Annotated[
        list[str] | None, typer.Option(help="All mail from, to and of this address. Repeatable.", metavar="ADDRESS")
    ] = None,
    query: Annotated[str | None, typer.Option(help="What this query finds, also in mail that arrives later.")] = None,
    message: Annotated[list[UUID] | None, typer.Option(help="A single message, by its id. Repeatable.", metavar="ID")] = None,
    json: Json = False,
) -> None:
    """Place a hold. It is in force at once, for mail that is archived and for mail that arrives later."""
    with archive_for("hold") as at:
        boxes = [find_mailbox(at.engine, one) for one in mailbox or ()]
        new = NewHold(name, reason, boxes, person or (), query, message or (), local_zone_name())
        hold = holds.place(at.engine, LOCAL_OPERATOR, new)
        save_config(at.engine, at.archive)
        holds.refresh(at.engine, at.archive, open_search(at.settings, at.engine), hold)
        found = _count(at, hold)
    _report(hold, found, f"The hold {hold.name} is in force, on {quantity(found, 'message')} so far.", json=json)


@app.command("add")
def add(
    name: Name,
    message: Annotated[list[UUID], typer.Argument(metavar="ID…", help="Messages to add, by their ids.")],
    json: Json = False,
) -> None:
    """Add single messages to a hold."""
    with archive_for("hold") as at:
        with at.engine.begin() as connection:
            hold = holds.load(connection, name)
            holds.add_messages(connection, LOCAL_OPERATOR, hold, message)
        save_config(at.engine, at.archive)
        found = _count(at, hold)
    _report(hold, found, f"The hold {hold.name} is on {quantity(found, 'message')}.", json=json)


@app.command("list")
def list_(
    released: Annotated[bool, typer.Option("--all", help="Also those that were released.")] = False, json: Json = False
) -> None:
    """List the holds."""
    with archive_for("hold") as at, at.engine.connect() as connection:
        found = [(hold, holds.count(connection, hold)) for hold in holds.list_holds(connection, released=released)]
    if json:
        return print_json({"holds": [{**asdict(hold), "messages": count} for hold, count in found]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("name", "on", "messages", "since", "by", "state"):
        table.add_column(heading, justify="right" if heading == "messages" else "left")
    for hold, count in found:
        values = (hold.name, _scope(hold), f"{count:,}", f"{hold.created_at:%Y-%m-%d}", hold.created_by, _state(hold))
        table.add_row(*map(Text, values))
    return console.print(table) if found else console.print("There is no hold.")


@app.command("show")
def show(name: Name, json: Json = False) -> None:
    """Show a hold."""
    with archive_for("hold") as at:
        with at.engine.connect() as connection:
            hold = holds.load(connection, name)
        found = _count(at, hold)
    if json:
        return print_json({**asdict(hold), "messages": found})
    for field, value in {**asdict(hold), "messages": found}.items():
        if value not in (None, []):
            console.print(f"{field:24} {value}", markup=False)
    return None


@app.command("notify")
def notify(
    name: Name,
    text: Annotated[str, typer.Option(help="The text of the notice. The mail adds a link to acknowledge it.")],
    json: Json = False,
) -> None:
    """Send a notice by mail to every person of a hold. It needs SMTP_URL and ARCHIVER_URL; a worker sends it."""
    with archive_for("hold") as at:
        with at.engine.begin() as connection:
            hold = holds.load(connection, name)
            found = custodian_notices.request_notices(connection, at.settings, LOCAL_OPERATOR, hold, text)
        save_config(at.engine, at.archive)
    if json:
        return print_json({"notices": [asdict(one) for one in found]})
    return console.print(f"{quantity(len(found), 'notice')} will be sent.", markup=False)


@app.command("notices")
def notices(name: Name, json: Json = False) -> None:
    """Show who was notified about a hold, and who has acknowledged it."""
    with archive_for("hold") as at, at.engine.connect() as connection:
        found = custodian_notices.list_notices(connection, holds.load(connection, name))
    if json:
        return print_json({"notices": [{**asdict(one), "state": one.state} for one in found]})
    for one in found:
        console.print(f"{one.address}: {one.state}{f' ({one.error})' if one.error else ''}", markup=False)
    return None if found else console.print("No notices were sent.")


@app.command("release")
def release(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why. The reason is stored with the release.")],
    json: Json = False,
) -> None:
    """Release a hold, so that its mail can be deleted again. With two-person approval, another administrator has to agree."""
    with archive_for("hold") as at:
        with at.engine.begin() as connection:
            needs_second = needs_second_person(connection, at.settings)
            hold = holds.release(connection, LOCAL_OPERATOR, holds.load(connection, name), reason, second_person=needs_second)
        save_config(at.engine, at.archive)
    outcome = "was released." if hold.released_at else "will be released once another administrator approves it."
    _report(hold, None, f"The hold {hold.name} {outcome}", json=json)


def _count(at: OpenArchive, hold: Hold) -> int:
    with at.engine.connect() as connection:
        return holds.count(connection, hold)


def _scope(hold: Hold) -> str:
    boxes = [quantity(len(hold.mailbox_ids), "mailbox")] if hold.mailbox_ids else []
    return ", ".join([*boxes, *hold.addresses, *([hold.query] if hold.query else [])]) or "selected messages"


def _state(hold: Hold) -> str:
    if hold.released_at is not None:
        return f"released {hold.released_at:%Y-%m-%d} by {hold.released_by}"
    return "release requested" if hold.release_requested_at else "in force"


def _report(hold: Hold, count: int | None, sentence: str, *, json: bool) -> None:
    counted: dict[str, Any] = {} if count is None else {"messages": count}
    print_json({**asdict(hold), **counted}) if json else console.print(sentence, markup=False)
