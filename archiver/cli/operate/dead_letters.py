"""`archiver dead-letters …`: what failed permanently."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, messages, print_json
from archiver.db.states import DeadLetterKind
from archiver.quantity import quantity
from archiver.sources import dead_letters
from archiver.sources import rows as source_rows
from archiver.sources.dead_letters import DeadLetterFilter

if TYPE_CHECKING:
    from sqlalchemy import Connection

app = typer.Typer(
    no_args_is_help=True,
    help="List, retry and discard what failed permanently: messages, documents and jobs, each with its reason.",
)

Id = Annotated[str, typer.Argument(help="The id, or its beginning.")]


Source = Annotated[str | None, typer.Option(help="Only dead letters of this source.")]
Kind = Annotated[DeadLetterKind | None, typer.Option(help="Only messages, documents or jobs.")]
Reason = Annotated[str | None, typer.Option(help="Only those whose reason contains this.")]
Older = Annotated[float | None, typer.Option(min=0, help="Only those that last failed more than this many hours ago.")]


@app.command("list")
def list_(
    source: Source = None,
    kind: Kind = None,
    reason: Reason = None,
    older_than: Older = None,
    discarded: Annotated[bool, typer.Option("--discarded", help="Only discarded dead letters.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")] = 100,
    json: Json = False,
) -> None:
    """List dead letters, newest first."""
    with archive_for("dead-letters") as archive, archive.engine.connect() as connection:
        wanted = replace(_filter(connection, source, kind, reason, older_than), discarded=discarded)
        found = dead_letters.listed(connection, wanted, limit=limit)
    if json:
        return print_json({"dead_letters": [_shape(letter) for letter in found]})
    if not found:
        return console.print("There are no dead letters.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("id", "kind", "where", "what", "tries", "next", "reason"):
        table.add_column(heading, justify="right" if heading == "tries" else "left")
    for letter in found:
        where = letter.mailbox or letter.source or ""
        what = letter.provider_key or letter.job or str(letter.message_id or "")
        when = f"{letter.next_try_at:%m-%d %H:%M}" if letter.next_try_at and not discarded else ""
        table.add_row(str(letter.id), letter.kind, where, Text(what), str(letter.attempts), when, Text(letter.reason))
    return console.print(table)


def _filter(
    connection: Connection, source: str | None, kind: DeadLetterKind | None, reason: str | None, older_than: float | None
) -> DeadLetterFilter:
    source_id = source_rows.find(connection, source).id if source else None
    return DeadLetterFilter(source_id, kind, reason_contains=reason, older_than_hours=older_than)


@app.command("replay")
def replay(
    source: Source = None, kind: Kind = None, reason: Reason = None, older_than: Older = None, json: Json = False
) -> None:
    """Retry all that match, at most 10,000 at once, such as what failed for a reason that is fixed now.

    Exits with 3 if some could not be retried; each cause is named.
    """
    with archive_for("dead-letters") as archive, archive.engine.begin() as connection:
        done = dead_letters.retry_all(connection, _filter(connection, source, kind, reason, older_than))
    if json:
        print_json({"retried": done.retried, "refused": dict(done.refused)})
    else:
        messages.print(f"{quantity(done.retried, 'dead letter')} will be retried.")
        for cause, count in done.refused:
            messages.print(f"{count:,} not retried: {cause}", markup=False)
    raise typer.Exit(3 if done.refused else 0)


@app.command("show")
def show(letter_id: Id, json: Json = False) -> None:
    """Show one dead letter with all its details."""
    with archive_for("dead-letters") as archive, archive.engine.connect() as connection:
        letter = _shape(dead_letters.find(connection, letter_id))
    if json:
        return print_json(letter)
    for name, value in letter.items():
        if value is not None:
            console.print(Text.assemble((f"{name:<16}", "dim"), str(value)))
    return None


@app.command("retry")
def retry(letter_ids: Annotated[list[str], typer.Argument(help="Ids, or their beginnings.")], json: Json = False) -> None:
    """Retry: a message is fetched in the next cycle of its source, a job runs immediately."""
    _apply(letter_ids, dead_letters.retry, "will be retried", json=json)


@app.command("discard")
def discard(letter_ids: Annotated[list[str], typer.Argument(help="Ids, or their beginnings.")], json: Json = False) -> None:
    """Stop retrying. Discarded dead letters stay listed with --discarded, so that what is not archived stays explained."""
    _apply(letter_ids, dead_letters.discard, "discarded", json=json)


def _apply(letter_ids: list[str], act: Any, outcome: str, *, json: bool) -> None:
    with archive_for("dead-letters") as archive, archive.engine.begin() as connection:
        for letter in [dead_letters.find(connection, letter_id) for letter_id in letter_ids]:
            act(connection, letter)
    if json:
        print_json({"dead_letters": letter_ids, "message": outcome})
    else:
        messages.print(f"{quantity(len(letter_ids), 'dead letter')} {outcome}.")


def _shape(letter: dead_letters.DeadLetter) -> dict[str, Any]:
    return {name: value for name, value in asdict(letter).items() if name not in ("source_id", "mailbox_id")}
