"""`archiver doctor`: checks the installation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from archiver.cli.terminal.connection import connect_if_running
from archiver.cli.terminal.output import Json, console, print_json
from archiver.config import load_settings
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.port import check_port_free

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}


def doctor(
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="MESSAGES,MAILBOXES", help="Print what an archive of this size needs, such as 20M,500."),
    ] = None,
    json: Json = False,
) -> None:
    """Check Python, disk, ports, permissions, keys, clock, versions, readers, migrations and workers. Starts no server.

    Exits with 1 if something has to be fixed. With --plan, checks nothing and prints how many cores, how much memory
    and disk, and how many workers an archive of the given size needs.
    """
    if plan is not None:
        return _print_plan(plan, json=json)
    from archiver.maintenance.checks.doctor import Verdict, examine

    settings = load_settings()
    running = not settings.embedded or ask_status(DataFolder(settings.archiver_data)) is not None
    with connect_if_running(settings) as found:
        findings = examine(found, running=running, port_free=lambda: check_port_free(found))
    healthy = all(finding.verdict is not Verdict.FAILED for finding in findings)
    if json:
        print_json({"healthy": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for finding in findings:
            mark, colour = _MARKS[finding.verdict]
            table.add_row(Text(mark, style=colour), finding.check, Text(finding.text))
        console.print(table)
    raise typer.Exit(0 if healthy else 1)


def _print_plan(text: str, *, json: bool) -> None:
    from archiver.maintenance.sizing import plan, read_plan

    found = plan(read_plan(text))
    if json:
        return print_json(asdict(found))
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in (
        ("cores", f"{found.cores:,}"),
        ("memory", _size(found.memory_bytes)),
        ("disk", f"{_size(found.disk_bytes)}, of which packs {_size(found.pack_bytes)},"
         f" PostgreSQL {_size(found.database_bytes)}, search index {_size(found.index_bytes)}"),
        ("ingestion workers", f"{found.ingestion_workers:,}, with {found.slots:,} mailboxes at a time altogether"),
        ("INDEXING_PROCESSES", f"{found.indexing_processes:,}"),
        ("Valkey", _size(found.redis_bytes)),
        ("first time", f"{found.first_hours:,.1f} hours until everything is searchable, if the provider is no slower"),
    ):  # fmt: skip
        table.add_row(name, value)
    console.print(f"For {found.messages:,} messages in {found.mailboxes:,} mailboxes ({_size(found.mail_bytes)} of mail):")
    console.print(table)
    for note in found.notes:
        console.print(f"- {note}")
    console.print("How it is computed: docs/operations/sizing.md", style="dim")
    return None


def _size(count: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count / 1e6:,.0f} MB"
