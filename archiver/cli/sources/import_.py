"""`archiver import`: archives mail files of any supported format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy import Connection

from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.follow import follow_index, wait_for_end
from archiver.cli.terminal.output import Json, messages, print_json
from archiver.cli.terminal.wait import Wait, is_full
from archiver.db.states import RunOutcome
from archiver.errors import UsageError
from archiver.maintenance.snapshot import save_config
from archiver.quantity import quantity
from archiver.secrets import credentials_keyring
from archiver.sources import imports, runs
from archiver.sources.imports import Import, ImportReport
from archiver.sources.runs import Run

_SHOWN = 20
_KINDS = ("auto", "mbox", "mboxo", "mboxrd", "mboxcl", "mboxcl2", "eml", "emlx")
_STYLES = {RunOutcome.SUCCESS: "green", RunOutcome.INCOMPLETE: "yellow"}


def import_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Files and folders; the format is detected from the content.")
    ],
    mailbox: Annotated[
        str, typer.Option(help="The mailbox to import into. {folder}@corp.com creates one for each top-level folder.")
    ] = "imported@localhost",
    kind: Annotated[str, typer.Option(help=f"The format of the named files: {', '.join(_KINDS)}.")] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as folders_out.")
    ] = None,
    wait: Wait = "",
    timeout: Annotated[float | None, typer.Option(help="With --wait: stop waiting after this many seconds.")] = None,
    json: Json = False,
) -> None:
    """Import mbox, .eml, Maildir, MH, .emlx, zip and tar files, or whole trees of them (Thunderbird, Google Takeout, …).

    Repeating an import archives nothing twice. Exits with 3 if some files could not be read; the report names them.
    """
    settings, full = _settings(paths, kind, set_), is_full(wait)
    absolute = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - resolve() would follow links
    with archive_for("import", "workers") as archive:
        keyring = credentials_keyring(archive.settings)
        item = imports.begin(archive.engine, keyring, absolute, mailbox, settings)
        save_config(archive.engine, archive.archive)
        if not wait:
            return _announce(item, json=json)
        run = _follow(archive, item, timeout, quiet=json)
        follow_index(archive.engine, run, timeout, quiet=json, full=full)
        with archive.engine.connect() as connection:
            report = imports.report(connection, item, run)
    if json:
        known = max(run.duplicates, report.known)
        print_json({"import": item.id, **run.figures(), "duplicates": known, **report.figures()})
    else:
        _print(run, report)
    raise typer.Exit({"success": 0, "incomplete": 3}.get(run.outcome, 1))


def _settings(paths: list[Path], kind: str, pairs: list[str] | None) -> dict[str, Any]:
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder")
    if kind not in _KINDS:
        raise UsageError(f"--kind {kind}: expected one of {', '.join(_KINDS)}")
    found: dict[str, Any] = {} if kind == "auto" else {"kind": kind}
    for entry in pairs or ():
        key, equals, value = entry.partition("=")
        if not key or not equals or key in ("paths", "mailbox", "number"):
            raise UsageError(f"--set {entry}: expected KEY=VALUE; `archiver source kinds` lists the settings")
        found[key] = value
    return found


def _announce(item: Import, *, json: bool) -> None:
    text = f"The import runs as long as `archiver up` does; `archiver source sync {item.source} --wait` follows it."
    print_json({"source": item.source, "import": item.id, "message": text}) if json else messages.print(text, markup=False)


def _follow(archive: OpenArchive, item: Import, timeout: float | None, *, quiet: bool) -> Run:
    columns = (
        TextColumn("importing"),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[kinds]}", style="dim", markup=False),
    )
    is_shown = messages.is_terminal and not quiet
    with Progress(*columns, console=messages, disable=not is_shown, transient=True) as progress:
        bar = progress.add_task("", total=None, figures="waiting for a worker", kinds="")

        def redraw(connection: Connection) -> None:
            for session in runs.running(connection, item.source_id):
                if imports.load(connection, item.id).session_id != session.session_id:
                    progress.update(bar, figures="waiting for another import into this mailbox")
                    continue
                tally = imports.tally(connection, item)
                rate = f"{tally.found / session.seconds:,.0f}/s" if session.seconds else ""
                read = f"{decimal(tally.read_bytes)} of {decimal(tally.total_bytes)}"
                figures, kinds = f"{read}, {quantity(tally.found, 'message')}, {rate}", _format_kinds(tally.kinds)
                progress.update(bar, total=tally.total_bytes or None, completed=tally.read_bytes, figures=figures, kinds=kinds)

        def find(connection: Connection) -> Run | None:
            return imports.ended_run(connection, item.id)

        return wait_for_end(archive, item.source_id, find, timeout, redraw, is_shown=is_shown)


def _format_kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())


def _print(run: Run, report: ImportReport) -> None:
    style = _STYLES.get(run.outcome, "red")
    rate = report.tally.found / run.seconds if run.seconds else 0.0
    messages.print(
        f"[{style}]{run.outcome}[/{style}]: {run.archived:,} archived ({decimal(run.bytes)}), {report.known:,} already known, "
        f"{report.tally.found:,} found in {run.seconds:.1f} s ({rate:,.0f} messages/s)"
    )
    messages.print(f"files: {_format_kinds(report.tally.kinds) or 'none'}", markup=False)
    for error in run.errors:
        messages.print(f"  {error['mailbox']}: {error['error']}", style="red", markup=False)
    for rule, number in report.left_out:
        messages.print(f"excluded: {quantity(number, 'message')}, {rule}", markup=False)
    _print_list("formats", report.variants, "dim")
    _print_list("could not be read", tuple(sorted(report.tally.failures.items())), "yellow")
    _print_list("not mail", report.not_mail, "dim")


def _print_list(title: str, found: tuple[tuple[str, str], ...], style: str) -> None:
    if found:
        messages.print(f"{title} ({len(found):,}):", style=style)
        for path, reason in found[:_SHOWN]:
            messages.print(f"  {path}: {reason}", markup=False)
        if len(found) > _SHOWN:
            messages.print(f"  … and {len(found) - _SHOWN:,} more (--json lists them)", style="dim")
