"""`archiver audit …`: who did what, and the proof that the log was not changed."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.access import audit
from archiver.access.principal import LOCAL_OPERATOR
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.output import Json, console, print_json
from archiver.evidence.anchors import Anchors
from archiver.evidence.proof import prove
from archiver.quantity import quantity

app = typer.Typer(no_args_is_help=True, help="Show who did what, and prove that the log was not changed.")

Actor = Annotated[str | None, typer.Option(help="Only entries of this user (local-operator: the command line).")]
Action = Annotated[
    str | None, typer.Option(help="Only this action, or every action with this prefix: message.read, or message.")
]
Since = Annotated[datetime | None, typer.Option(help="Only entries at or after this time (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Only entries before this time (UTC).")]


@app.command("list")
def list_(
    actor: Actor = None,
    action: Action = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many entries.")] = 50,
    json: Json = False,
) -> None:
    """List the newest entries."""
    with archive_for("audit") as archive, archive.engine.connect() as connection:
        found = audit.list_entries(connection, limit=limit, actor=actor, action=action, since=since, until=until)
    if json:
        return print_json({"entries": [asdict(entry) for entry in found]})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("number", "at", "actor", "action", "object", "detail"):
        table.add_column(heading, justify="right" if heading == "number" else "left")
    for entry in found:
        detail = " ".join(f"{name}={value}" for name, value in entry.detail.items())
        what = f"{entry.object_kind or ''} {entry.object_id or ''}".strip()
        at = f"{entry.at:%Y-%m-%d %H:%M:%S}"
        table.add_row(str(entry.id), at, *(Text(value) for value in (entry.actor, entry.action, what, detail)))
    return console.print(table)


@app.command("export")
def export(actor: Actor = None, action: Action = None, since: Since = None, until: Until = None) -> None:
    """Write all entries to standard output as JSON lines, newest first."""
    with archive_for("audit") as archive:
        filters: dict[str, Any] = {"actor": actor, "action": action, "since": since, "until": until}
        for entry in audit.export_entries(archive.engine, **filters):
            sys.stdout.write(json_module.dumps(asdict(entry), default=str) + "\n")


@app.command("verify")
def verify(
    head: Annotated[
        str | None, typer.Option(help="The head that an earlier `verify` printed; it must still be in the log.")
    ] = None,
    json: Json = False,
) -> None:
    """Rehash every entry and compare the log with the anchors in the packs. Exits with 1 if it was changed or truncated."""
    with archive_for("audit") as archive:
        done = prove(Anchors(archive.engine, archive.archive, archive.settings.archiver_data), head)
    if json:
        print_json(asdict(done))
    else:
        for fault in done.broken[:20]:
            console.print(f"[red]broken[/] {fault}")
        for line in done.accepted:
            console.print(f"[dim]note[/]   {line}")
        verdict = "is whole" if not done.broken else f"has {quantity(len(done.broken), 'fault')}"
        anchored = f"{quantity(done.anchors, 'anchor')} in the packs cover {quantity(done.anchored_entries, 'entry')}"
        console.print(f"The chain of {quantity(done.entries, 'entry')} {verdict}; {anchored}. Head: {done.head}", markup=False)
    raise typer.Exit(1 if done.broken else 0)


@app.command("accept")
def accept(
    reason: Annotated[str, typer.Option(help="Why the log may differ from its anchors, such as: restored Monday's dump.")],
) -> None:
    """Accept that the log does not match its older anchors, for example after the database was restored. This is audited too.

    `archiver rebuild` and `archiver restore` do this themselves.
    """
    with archive_for("audit") as archive:
        anchors = Anchors(archive.engine, archive.archive, archive.settings.archiver_data)
        anchor = anchors.accept(LOCAL_OPERATOR, reason)
    console.print(f"Accepted. From now on the log is verified from its head {anchor.head}.", markup=False)
