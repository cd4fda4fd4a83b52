"""`archiver demo`: archives a sample organisation and prints a link to look around."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from archiver.access.login import demo_link, first_start
from archiver.cli.terminal.archive import archive_for
from archiver.cli.terminal.follow import follow_index, follow_run
from archiver.cli.terminal.output import console, messages
from archiver.config import load_settings, page_address
from archiver.errors import NotReady, UsageError
from archiver.search.service import MailSearch, open_search
from archiver.secrets import credentials_keyring
from archiver.sources import rows as source_rows
from archiver.sources import runs
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.sources.rows import Source
from archiver.sources.summary import Kept, kept
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.process import launch

_NAME = "Lantern Works"
_START_SECONDS = 120.0
_QUERIES = (
    "invoice",
    '"purchase order"',
    "from:@lanternworks.example has:attachment",
    "type:pdf OR type:spreadsheet",
    "subject:re (price OR order) -reminder",
    "larger:100K newer_than:10y",
    "in:Sent before:2025-01-01",
)


def demo(
    size: Annotated[str, typer.Option(help="small, medium or large: about 500, 3,000 or 50,000 messages.")] = "medium",
    stay: Annotated[bool, typer.Option("--stay/--no-stay", help="Keep running afterwards, until Ctrl-C.")] = True,
) -> None:
    """Create a sample organisation in ./data-demo, archive it through the whole chain, and print a link that signs you in."""
    if size not in ("small", "medium", "large"):
        raise UsageError(f"--size {size}: expected small, medium or large")
    os.environ.setdefault("ARCHIVER_DATA", "data-demo")
    os.environ["SAMPLE_SOURCES"] = "true"
    settings = load_settings()
    folder = DataFolder(settings.archiver_data)
    folder.prepare()
    if (running := ask_status(folder)) is not None:
        _show(size, running.get("page"))
        return
    os.environ["ARCHIVER_PORT"] = str(_port(settings.archiver_host, settings.archiver_port))
    log = folder.logs / "demo.log"
    with log.open("wb") as output:
        command = [sys.executable, "-P", "-m", "archiver", "up"]
        stack = launch(command, environment=os.environ, death_signal=signal.SIGINT, output=output.fileno())
    try:
        with messages.status("starting Postgres, Valkey, the search server, two workers and the web process"):
            _wait_until_ready(folder, stack, log)
        _show(size, page_address(load_settings()))
        if stay:
            console.print(f"Archiver keeps running on {folder.path}. Press Ctrl-C to stop it.")
            stack.wait()
    except KeyboardInterrupt:
        messages.print("stopping …")
    finally:
        if stack.poll() is None:
            stack.send_signal(signal.SIGINT)
            stack.wait()


def _port(host: str, wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    return wanted


def _wait_until_ready(folder: DataFolder, stack: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        status = ask_status(folder)
        if status is not None and status["ready"]:
            return
        if stack.poll() is not None or time.monotonic() > deadline:
            errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("archiver: ")]
            raise NotReady(errors[-1].removeprefix("archiver: ") if errors else f"the demo did not start; see {log}")
        time.sleep(0.1)


def _show(size: str, page: str | None) -> None:
    with archive_for("demo") as archive:
        with archive.engine.begin() as connection:
            found = [source for source in source_rows.all_sources(connection) if source.name == _NAME]
        keyring = credentials_keyring(archive.settings)
        if found:
            source = found[0]
        else:
            values = {"mode": "sample", "size": size}
            source = sources.add(archive.engine, keyring, QuietContext(), "fake", _NAME, values, {})
        with archive.engine.begin() as connection:
            before = runs.newest_run(connection, source.id)
            sources.sync_now(connection, source)
        run = follow_run(archive, source, before, None, None, quiet=False)
        console.print("A few sample messages are damaged or can't be fetched on purpose, to show how that is reported.")
        with archive.engine.connect() as connection:
            _summary(source, kept(connection, source.id))
        follow_index(archive.engine, run, None, quiet=False, full=True)
        _search(open_search(archive.settings, archive.engine))
        if page is not None:
            token = demo_link.new_token(archive.engine, archive.settings)
            first_start.delete_token(archive.settings)
            console.print("\nOpen this link to look around. It signs you in, works once, and expires in 15 minutes:\n")
            console.print(f"    [bold]{page}/demo#token={token}[/bold]\n", soft_wrap=True)


def _search(search: MailSearch) -> None:
    """A few searches that show the query language."""
    table = Table(box=None, pad_edge=False, header_style="dim", title="\nSearches", title_justify="left", title_style="bold")
    for heading in ("query", "found", "ms", "newest"):
        table.add_column(heading, justify="right" if heading in ("found", "ms") else "left", no_wrap=heading == "newest")
    for query in _QUERIES:
        started = time.monotonic()
        found = search.search(query, limit=1)
        spent = (time.monotonic() - started) * 1000
        hit = next(iter(found.hits), None)
        newest = f"{hit.date:%Y-%m-%d} {hit.sender_name or hit.sender or ''}: {hit.subject.text}" if hit else ""
        table.add_row(escape(query), f"{found.total:,}", f"{spent:.0f}", escape(newest))
    console.print(table)
    console.print("\nTry your own with [bold]archiver search QUERY[/bold]; docs/search.md explains the query language.")


def _summary(source: Source, found: Kept) -> None:
    table = Table(
        box=None, pad_edge=False, header_style="dim", title=f"\n{source.name}", title_justify="left", title_style="bold"
    )
    for heading in ("mailbox", "copies", "folders", "skipped", "not fetched", "missing"):
        table.add_column(heading, justify="left" if heading == "mailbox" else "right")
    for box in found.mailboxes:
        numbers = (box.copies, box.folders, box.skipped, box.dead_letters, box.missing)
        table.add_row(box.address, *(f"{number:,}" if number else "·" for number in numbers))
    console.print(table)
    console.print(
        f"\n[bold]{found.copies:,}[/bold] copies of [bold]{found.messages:,}[/bold] messages, {decimal(found.copied_bytes)} "
        f"originally, {decimal(found.stored_bytes)} on disk: encrypted, verified, byte for byte."
    )
    for title, pairs in (
        ("Malformed, archived nevertheless", found.broken),
        ("Excluded by a rule", found.skipped),
        ("Not fetched yet, will be retried", found.unfetched),
    ):
        if pairs:
            console.print(f"\n{title}:")
            for what, number in pairs:
                console.print(f"  {number:>5,}  {what}", markup=False)
