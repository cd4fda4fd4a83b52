"""Follows a cycle to its end, with a bar for the whole and one for each mailbox that is being read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from uuid import UUID

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from sqlalchemy import Connection, Engine

from archiver.cli.archive import OpenArchive
from archiver.cli.output import messages
from archiver.models.states import RunOutcome
from archiver.queue.completion import CycleEnds
from archiver.services import runs
from archiver.services.runs import Run
from archiver.services.source_rows import Source

_STYLES = {RunOutcome.SUCCESS: "green", RunOutcome.INCOMPLETE: "yellow"}
_BARS_SECONDS = 0.25
_LOOK_SECONDS = 2.0


def wait_for_end(
    archive: OpenArchive,
    source: Source,
    after: UUID | None,
    timeout_seconds: float | None,
    look: Callable[[Connection], None],
    *,
    is_shown: bool,
) -> Run:
    """Until the source's next cycle has ended, by the queue's events; `look` is for bars, which are drawn more often."""
    redis_url = archive.settings.redis_url
    assert redis_url is not None
    seconds = _BARS_SECONDS if is_shown else _LOOK_SECONDS
    with CycleEnds(redis_url.get_secret_value(), source.id) as ends:
        return runs.wait_for_run(archive.engine, source.id, after, timeout_seconds, look, lambda: ends.wait(seconds))


def follow_run(archive: OpenArchive, source: Source, after: UUID | None, timeout_seconds: float | None, *, quiet: bool) -> Run:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
    )
    is_shown = messages.is_terminal and not quiet
    with Progress(*columns, console=messages, disable=not is_shown, transient=True) as progress:
        whole = progress.add_task(source.name, total=None, figures="waiting for a worker")
        bars: dict[str, TaskID] = {}

        def look(connection: Connection) -> None:
            for one in runs.running(connection, source.id):
                rate = one.archived / one.seconds if one.seconds else 0.0
                figures = f"{one.archived:,} archived, {rate:,.0f}/s, {decimal(one.bytes)}"
                if one.total:
                    progress.update(whole, total=one.total, completed=one.seen, figures=figures)
                else:
                    progress.update(whole, total=one.mailboxes or None, completed=one.ended_mailboxes, figures=figures)
                _show_mailboxes(connection, one.session_id, progress, bars)

        run = wait_for_end(archive, source, after, timeout_seconds, look, is_shown=is_shown)
    if not quiet:
        _sum_up(run)
    return run


def follow_index(engine: Engine, run: Run, timeout_seconds: float | None, *, quiet: bool, full: bool = False) -> None:
    """Until what the run has brought can be found; `full`: by its attachments, too."""
    with messages.status("indexing", spinner="dots") if not quiet and messages.is_terminal else nullcontext() as status:

        def look(left: int) -> None:
            if status is not None:
                status.update(f"indexing: {left:,} messages left")

        runs.wait_until_searchable(engine, run.id, timeout_seconds, look, full=full)


def _show_mailboxes(connection: Connection, session_id: UUID, progress: Progress, bars: dict[str, TaskID]) -> None:
    shown = {box.address: box for box in runs.mailboxes(connection, session_id, 8) if box.state == "running"}
    for address in list(bars):
        if address not in shown:
            progress.remove_task(bars.pop(address))
    for address, box in shown.items():
        if address not in bars:
            bars[address] = progress.add_task(f"  {address}", total=None, figures="")
        progress.update(bars[address], total=box.total, completed=box.seen, figures=f"{box.seen:,}")


def _sum_up(run: Run) -> None:
    style = _STYLES.get(run.outcome, "red")
    rate = run.archived / run.seconds if run.seconds else 0.0
    messages.print(
        f"[{style}]{run.outcome}[/{style}]: {run.archived:,} archived ({decimal(run.bytes)}, {rate:,.0f} messages/s), "
        f"{run.duplicates:,} known, {run.skipped:,} skipped, {run.failed:,} failed, "
        f"{run.missing:,} missing{run.said_about_deleted}; "
        f"{run.mailboxes:,} mailboxes, {run.failed_mailboxes:,} failed; {run.seconds:.1f} s"
    )
    for error in run.errors:
        messages.print(f"  {error['mailbox']}: {error['error']}", style="yellow", markup=False)
