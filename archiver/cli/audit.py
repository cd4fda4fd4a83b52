"""`archiver audit …`: who did what, and the proof that nobody changed it."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.archive import opened
from archiver.cli.output import Json, console, print_json
from archiver.services import audit
from archiver.services.audit_anchors import Anchors
from archiver.services.audit_proof import prove
from archiver.services.principal import LOCAL_OPERATOR

app = typer.Typer(no_args_is_help=True, help="Who did what, and the proof that nobody changed it.")

Actor = Annotated[str | None, typer.Option(help="Only what this user did (local-operator: the command line).")]
Action = Annotated[str | None, typer.Option(help="Only this action, or all of a kind: message.read, or message.")]
Since = Annotated[datetime | None, typer.Option(help="From this time on (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Before this time (UTC).")]


@app.command("list")
def list_(
    actor: Actor = None,
    action: Action = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")] = 50,
    json: Json = False,
) -> None:
    """The newest entries."""
    with opened("audit") as archive, archive.engine.connect() as connection:
        found = audit.listed(connection, most=limit, actor=actor, action=action, since=since, until=until)
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
    """All entries as JSON lines on standard output, the newest first."""
    with opened("audit") as archive:
        filters: dict[str, Any] = {"actor": actor, "action": action, "since": since, "until": until}
        for entry in audit.exported(archive.engine, **filters):
            sys.stdout.write(json_module.dumps(asdict(entry), default=str) + "\n")


@app.command("verify")
def verify(
    head: Annotated[str | None, typer.Option(help="What an earlier `verify` gave as the head: it must still be there.")] = None,
    json: Json = False,
) -> None:
    """Hash every entry again, and compare with the anchors in the packs. Ends with 1 if the log was changed or cut."""
    with opened("audit") as archive:
        done = prove(Anchors(archive.engine, archive.archive, archive.settings.archiver_data), head)
    if json:
        print_json(asdict(done))
    else:
        for fault in done.broken[:20]:
            console.print(f"[red]broken[/] {fault}")
        for line in done.accepted:
            console.print(f"[dim]note[/]   {line}")
        said = "is whole" if not done.broken else f"has {len(done.broken)} fault(s)"
        anchored = f"{done.anchored_entries:,} of them are anchored in the packs ({done.anchors:,} anchors)"
        console.print(f"The chain of {done.entries:,} entries {said}; {anchored}. Head: {done.head}", markup=False)
    raise typer.Exit(1 if done.broken else 0)


@app.command("accept")
def accept(
    reason: Annotated[str, typer.Option(help="Why the log may differ from its anchors, such as: restored the dump of Monday.")],
) -> None:
    """Accept that the log does not fit its older anchors, after a restored database for one. This is on record itself.

    `archiver rebuild` and `archiver restore` do it by themselves.
    """
    with opened("audit") as archive:
        anchors = Anchors(archive.engine, archive.archive, archive.settings.archiver_data)
        anchor = anchors.accept(LOCAL_OPERATOR, reason)
    console.print(f"Accepted. The log counts from its head {anchor.head} on.", markup=False)
