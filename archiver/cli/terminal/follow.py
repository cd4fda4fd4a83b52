"""Follows a sync cycle to its end, with one progress bar for the cycle and one for each mailbox that is being read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from uuid import UUID

from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from sqlalchemy import Connection, Engine

from archiver.cli.terminal.archive import OpenArchive
from archiver.cli.terminal.output import messages
from archiver.db.states import RunOutcome
from archiver.quantity import quantity
from archiver.queue.completion import CycleEnds
from archiver.sources import back_off, runs
from archiver.sources.rows import Source
from archiver.sources.runs import Run

_STYLES = {RunOutcome.SUCCESS: "green", RunOutcome.INCOMPLETE: "yellow"}
_BARS_SECONDS = 0.25
_POLL_SECONDS = 2.0


def wait_for_end(
    archive: OpenArchive,
    source_id: UUID,
    find: Callable[[Connection], Run | None],
    timeout_seconds: float | None,
    on_poll: Callable[[Connection], None],
    *,
    is_shown: bool,
) -> Run:
    """Waits until `find` returns a run of this source, woken by the queue's events. `on_poll` redraws the progress bars."""
    redis_url = archive.settings.redis_url
    assert redis_url is not None
    seconds = _BARS_SECONDS if is_shown else _POLL_SECONDS
    with CycleEnds(redis_url.get_secret_value(), source_id) as ends:
        return runs.wait_until_found(archive.engine, find, timeout_seconds, on_poll, lambda: ends.wait(seconds))


def follow_run(
    archive: OpenArchive,
    source: Source,
    after: UUID | None,
    live: UUID | None,
    timeout_seconds: float | None,
    *,
    quiet: bool,
) -> Run:
    """To the end of the cycle after the run `after` and the session `live`, which was under way when it was requested."""
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

        def redraw(connection: Connection) -> None:
            for session in runs.running(connection, source.id):
                rate = session.archived / session.seconds if session.seconds else 0.0
                figures = f"{session.archived:,} archived, {rate:,.0f}/s, {decimal(session.bytes)}"
                if session.total:
                    progress.update(whole, total=session.total, completed=session.seen, figures=figures)
                else:
                    ended = session.ended_mailboxes
                    progress.update(whole, total=session.mailboxes or None, completed=ended, figures=figures)
                _show_mailboxes(connection, session.session_id, progress, bars)

        def find(connection: Connection) -> Run | None:
            return runs.first_run(connection, source.id, after, live)

        run = wait_for_end(archive, source.id, find, timeout_seconds, redraw, is_shown=is_shown)
    if not quiet:
        _print_summary(run)
        with archive.engine.connect() as connection:
            for mailbox in back_off.waiting(connection, source.id):
                messages.print(f"  {mailbox.going_on}", style="yellow", markup=False)
    return run


def follow_index(engine: Engine, run: Run, timeout_seconds: float | None, *, quiet: bool, full: bool = False) -> None:
    """Waits until the run's messages are searchable; `full`: their attachments too."""
    with messages.status("indexing", spinner="dots") if not quiet and messages.is_terminal else nullcontext() as status:

        def show_progress(left: int) -> None:
            if status is not None:
                status.update(f"indexing: {quantity(left, 'message')} left")

        runs.wait_until_searchable(engine, run.id, timeout_seconds, show_progress, full=full)


def _show_mailboxes(connection: Connection, session_id: UUID, progress: Progress, bars: dict[str, TaskID]) -> None:
    shown = {box.address: box for box in runs.mailboxes(connection, session_id, 8) if box.state == "running"}
    for address in list(bars):
        if address not in shown:
            progress.remove_task(bars.pop(address))
    for address, box in shown.items():
        if address not in bars:
            bars[address] = progress.add_task(f"  {address}", total=None, figures="")
        progress.update(bars[address], total=box.total, completed=box.seen, figures=f"{box.seen:,}")


def _print_summary(run: Run) -> None:
    style = _STYLES.get(run.outcome, "red")
    rate = run.archived / run.seconds if run.seconds else 0.0
    messages.print(
        f"[{style}]{run.outcome}[/{style}]: {run.archived:,} archived ({decimal(run.bytes)}, {rate:,.0f} messages/s), "
        f"{run.duplicates:,} known, {run.skipped:,} skipped, {run.failed:,} failed, "
        f"{run.missing:,} missing{run.deleted_phrase}; "
        f"{quantity(run.mailboxes, 'mailbox')}, {run.failed_mailboxes:,} failed; {run.seconds:.1f} s"
    )
    if run.message and not run.errors:
        messages.print(f"  {run.message}", style="yellow", markup=False)
    for error in run.errors:
        messages.print(f"  {error['mailbox']}: {error['error']}", style="yellow", markup=False)
