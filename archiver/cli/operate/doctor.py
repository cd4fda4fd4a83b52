"""`archiver doctor`: checks the installation."""

from __future__ import annotations

from dataclasses import asdict

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


def doctor(json: Json = False) -> None:
    """Check Python, disk, ports, permissions, keys, clock, versions, readers, migrations and workers. Starts no server.

    Exits with 1 if something has to be fixed.
    """
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
