"""`archiver status`: what runs, and what is in the archive."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from archiver.cli.terminal.connection import connect_if_running
from archiver.cli.terminal.output import Json, console, print_json
from archiver.config import Settings, load_settings
from archiver.errors import ArchiverError
from archiver.quantity import quantity, time_span
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder

_EVERY_SECONDS = 2.0


def status(
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show what runs, whether it responds, and what is in the archive. Starts nothing.

    Exits with 1 if a part does not respond.
    """
    settings = load_settings()
    if not watch:
        found = _collect(settings)
        print_json(found) if json else console.print(_page(found))
        raise typer.Exit(0 if found["ready"] else 1)
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(_page(_collect(settings)), refresh=True)
                time.sleep(_EVERY_SECONDS)
        except KeyboardInterrupt:
            return


def _collect(settings: Settings) -> dict[str, Any]:
    from archiver.maintenance.checks.health import check_parts

    stack = ask_status(DataFolder(settings.archiver_data)) if settings.embedded else None
    with connect_if_running(settings) as found:
        parts = check_parts(found)
        answer: dict[str, Any] = {
            "data": str(settings.archiver_data),
            "stack": stack,
            "ready": all(part.ok for part in parts),
            "parts": [asdict(part) for part in parts],
        }
        ok = {part.part for part in parts if part.ok}
        return {**answer, **_archive_figures(found, ok), "jobs": _job_counts(found, ok)}


def _archive_figures(settings: Settings, ok: set[str]) -> dict[str, Any]:
    """Empty if Postgres does not respond, which the table of parts shows."""
    from sqlalchemy.exc import DBAPIError

    from archiver.db.engine import make_engine
    from archiver.db.pause import find_pause
    from archiver.maintenance.status import count_rows
    from archiver.sources import runs
    from archiver.workflows import service as workflows

    if "postgres" not in ok or settings.database_url is None:
        return {"archive": None, "running": [], "workflows": [], "pause": None}
    engine = make_engine(settings.database_url.get_secret_value(), "status", pool_size=1)
    try:
        with engine.connect() as connection:
            running = [asdict(session) for session in runs.running(connection)]
            workflow_runs = [asdict(run) for run in workflows.running(connection)]
            pause = find_pause(connection)
        figures = {"archive": asdict(count_rows(engine)), "running": running, "workflows": workflow_runs}
        return {**figures, "pause": asdict(pause) if pause else None}
    except DBAPIError as error:
        raise ArchiverError("the database schema does not match this version: run `archiver migrate`") from error
    finally:
        engine.dispose()


def _job_counts(settings: Settings, ok: set[str]) -> dict[str, dict[str, int]] | None:
    from archiver.maintenance.status import count_jobs

    return count_jobs(settings.redis_url.get_secret_value()) if "redis" in ok and settings.redis_url is not None else None


def _page(found: dict[str, Any]) -> Group:
    stack = found["stack"]
    lines: list[Any] = []
    if stack is not None:
        lines += [
            Text(f"running on {found['data']}, started by pid {stack['pid']}", style="dim"),
            _stack_table(stack),
            "",
        ]
    elif not any(part["ok"] for part in found["parts"]):
        return Group(Text(f"Nothing runs on {found['data']}. `archiver up` starts everything."))
    lines.append(_health_table(found["parts"]))
    if found["archive"] is not None:
        lines += ["", _archive_line(found["archive"])]
    if found["jobs"] is not None:
        waiting = {
            queue: counts["waiting"] + counts["prioritized"] + counts["delayed"] for queue, counts in found["jobs"].items()
        }
        busy = ", ".join(f"{queue}: {found['jobs'][queue]['active']} running, {waiting[queue]} waiting" for queue in waiting)
        lines.append(Text(f"jobs      {busy}"))
    if found["pause"] is not None:
        lines.append(_pause_line(found["pause"]))
    if found["running"]:
        lines += ["", _running_table(found["running"])]
    if found["workflows"]:
        lines += ["", _workflow_table(found["workflows"])]
    return Group(*lines)


def _pause_line(pause: dict[str, Any]) -> Text:
    waiting = f"; still working: {', '.join(pause['working'])}" if pause["working"] else ""
    return Text(f"paused    all workers, since {pause['started_at']:%H:%M:%S} UTC: {pause['reason']}{waiting}", style="yellow")


def _running_table(running: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("syncing", "", "archived", "per s", "mailboxes", "failed", "left"):
        table.add_column(heading, justify="left" if heading in ("syncing", "") else "right")
    for session in running:
        done, total = (
            (session["seen"], session["total"]) if session["total"] else (session["ended_mailboxes"], session["mailboxes"])
        )
        rate = session["archived"] / session["seconds"] if session["seconds"] else 0.0
        left = session["left_seconds"]
        table.add_row(
            session["source"],
            ProgressBar(total=total or 1, completed=min(done, total or 1), width=24),
            f"{session['archived']:,}",
            f"{rate:,.0f}",
            f"{session['ended_mailboxes']:,}/{session['mailboxes']:,}",
            f"{session['failed']:,}",
            time_span(left) if left is not None else "",
        )
    return table


def _workflow_table(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("workflow", "owner", "state", "step", ""):
        table.add_column(heading)
    for run in found:
        bar = ProgressBar(total=run["total"] or 1, completed=min(run["done"], run["total"] or 1), width=24)
        table.add_row(run["workflow"], run["owner_name"], str(run["state"]), run["step"] or "", bar)
    return table


def _stack_table(stack: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("process", "state", "pid", "restarts", ""):
        table.add_column(heading, justify="right" if heading in ("pid", "restarts") else "left")
    for part in stack["parts"]:
        if part["state"] != "done":
            colour = "green" if part["state"] == "running" else "yellow"
            table.add_row(
                part["name"],
                Text(part["state"], style=colour),
                str(part["pid"] or ""),
                str(part["restarts"] or ""),
                part["note"],
            )
    return table


def _health_table(parts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("part", "responds", "ms", "detail"):
        table.add_column(heading, justify="right" if heading == "ms" else "left")
    for part in parts:
        answer = Text("yes", style="green") if part["ok"] else Text("no", style="red")
        table.add_row(part["part"], answer, f"{part['seconds'] * 1000:.0f}", part["detail"])
    return table


def _archive_line(archive: dict[str, int]) -> Text:
    return Text(
        f"archive   {quantity(archive['messages'], 'message')}, {archive['bytes'] / 1e9:,.2f} GB; "
        f"sources: {archive['sources']:,}; mailboxes: {archive['mailboxes']:,}{_gone(archive)}; "
        f"{archive['not_indexed']:,} not searchable yet{_lag(archive)}; dead letters: {archive['dead_letters']:,}"
    )


def _gone(archive: dict[str, int]) -> str:
    return f" ({archive['gone_mailboxes']:,} no longer listed by their source)" if archive["gone_mailboxes"] else ""


def _lag(archive: dict[str, int]) -> str:
    behind = f" (for {archive['index_lag_seconds']:,} s)" if archive["not_indexed"] else ""
    return (
        f"{behind}, {archive['attachments_waiting']:,} without their attachments" if archive["attachments_waiting"] else behind
    )
