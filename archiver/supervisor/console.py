"""What `archiver up` shows: a small live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from archiver.supervisor.supervisor import Child, PartState

_COLOURS = {
    PartState.RUNNING: "green",
    PartState.DONE: "green",
    PartState.STARTING: "yellow",
    PartState.STOPPING: "yellow",
    PartState.RESTARTING: "red",
    PartState.FAILED: "bold red",
}
_STORED = ("postgres", "valkey")
"""These write no log file: the supervisor stores their output, and shows only errors."""
_WORTH_SHOWING = ("ERROR:", "FATAL:", "PANIC:")


class Board:
    """Safe to call from any thread."""

    def __init__(self, console: Console, logs: Path, *, quiet: bool = False) -> None:
        self._console, self._logs, self._quiet = console, logs, quiet
        self._live: Live | None = None
        self._children: list[Child] = []
        self._shown: dict[str, str] = {}
        self._files: dict[str, IO[str]] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Board:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        for file in self._files.values():
            file.close()

    def add_line(self, part: str, text: str) -> None:
        """A line of a part's output."""
        with self._lock:
            if part in _STORED and not text.startswith("***"):
                self._store_line(part, text)
                if not any(word in text for word in _WORTH_SHOWING):
                    return
            if self._quiet and not text.startswith("***"):
                return
            if self._console.is_terminal:
                self._console.print(Text.assemble((f"{part:<10} ", "dim"), _readable(text)))
            else:
                self._console.print(f"{part} | {text}", markup=False, highlight=False, soft_wrap=True)

    def _store_line(self, part: str, text: str) -> None:
        if part not in self._files:
            path = self._logs / f"{part}.log"
            if path.exists() and path.stat().st_size > 10 << 20:
                path.replace(path.with_suffix(".log.1"))
            self._files[part] = path.open("a", encoding="utf-8")
        self._files[part].write(time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + text + "\n")
        self._files[part].flush()

    def show_states(self, children: list[Child]) -> None:
        with self._lock:
            if self._live:
                self._live.update(_table(children), refresh=True)
                return
            for child in children:
                if self._shown.get(child.part.name) != child.state and not self._quiet:
                    self._console.print(f"{child.part.name}: {child.state}", markup=False, highlight=False)
                self._shown[child.part.name] = child.state

    def say(self, text: str) -> None:
        with self._lock:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(children: list[Child]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for heading in ("part", "state", "pid", "restarts", ""):
        table.add_column(heading, justify="right" if heading in ("pid", "restarts") else "left")
    for child in children:
        if child.part.runs_once and child.ready:
            continue
        pid = str(child.process.pid) if child.process and child.alive else ""
        state = Text(child.state, style=_COLOURS.get(child.state, "dim"))
        table.add_row(child.part.name, state, pid, str(child.restarts or ""), Text(child.note, style="dim"))
    return table


def _readable(text: str) -> Text:
    """Formats a structured log line for people; other lines stay unchanged."""
    if not text.startswith("{"):
        return Text(text)
    try:
        fields = json.loads(text)
        event, level = str(fields.pop("event")), str(fields.pop("level", "info"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Text(text)
    fields.pop("timestamp", None)
    fields.pop("logger", None)
    trace = str(fields.pop("exception", ""))
    style = {"error": "red", "critical": "bold red", "warning": "yellow"}.get(level, "")
    rest = " ".join(f"{name}={value}" for name, value in fields.items())
    return Text.assemble((event, style), (f" {rest}" if rest else ""), (f"\n{trace}" if trace else "", "dim"))
