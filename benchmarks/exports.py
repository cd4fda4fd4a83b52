"""Exports: messages collected, packed, signed and read back; PDF files; and what the start of a workflow's step costs.

One process does all steps, one after the other, as `archiver export` does; several workers share them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import UUID

import psutil
import structlog
from sqlalchemy import Engine

from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings, load_settings
from archiver.db.ids import uuid7
from archiver.evidence import signing
from archiver.exports import service as exports
from archiver.exports.selection import PackageOptions, Selection
from archiver.exports.workflow import EXPORT
from archiver.secrets import Keyring
from archiver.workflows import service as workflows
from archiver.workflows.advance import drive
from archiver.workflows.definition import Nothing, Step, Workflow, registry
from archiver.workflows.step_run import WorkflowResources
from benchmarks.mail_set import mail_set
from benchmarks.report import figure, load
from benchmarks.store import Stopwatch, World, server, store, world

_KEYRING = Keyring({"bench": b"b" * 32})
_STEPS = 5
_RUNS = 40
_HIGH_WATER = "VmHWM:"


@dataclass(frozen=True, slots=True)
class NoInput:
    """Of a workflow that does nothing."""


IDLE = Workflow("idle", 1, NoInput, tuple((Step(f"step-{number}", lambda _: Nothing()),) for number in range(_STEPS)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=10_000)
    options.add_argument("--pdf", type=int, default=1_000, help="messages as PDF")
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    load()
    with (
        tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder,
        server(Path(folder)) as postgres,
        world(postgres, Path(folder)) as at,
    ):
        print(f"  {_fill(at, given.messages)}")
        bench = _Bench(at, Path(folder))
        bench.steps()
        for kind in ("eml", "mbox", "maildir"):
            bench.export(kind, given.messages, "≤ 60 for 10,000")
        bench.export("pdf", given.pdf, "≤ 300 for 1,000")


def _fill(at: World, count: int) -> str:
    said, messages = mail_set(count)
    store(at, messages)
    return f"{said}: {len(messages):,} messages, {sum(map(len, messages)) / 1e6:,.1f} MB"


class _Bench:
    def __init__(self, at: World, folder: Path) -> None:
        self._engine, self._folder = cast(Engine, at.engine), folder
        settings: Settings = load_settings({"ARCHIVER_DATA": str(folder), "DISK_MIN_FREE_BYTES": "0"}, Path("none"))
        self._resources = WorkflowResources(settings, self._engine, at.archive, _KEYRING, registry(EXPORT, IDLE))
        with self._engine.begin() as connection:
            signing.create_key(connection, _KEYRING)

    def steps(self) -> None:
        with Stopwatch() as watch:
            for _ in range(_RUNS):
                doorbell = uuid7()
                with self._engine.begin() as connection:
                    run = workflows.start(connection, IDLE, NoInput(), LOCAL_OPERATOR, local_doorbell=doorbell)
                drive(self._resources, run.id, doorbell)
        count = _RUNS * _STEPS
        figure("starting and ending a step", 1e3 * watch.wall / count, "ms", "≤ 10")
        figure("  processor time, ours and Postgres'", 1e3 * (watch.cpu + watch.server) / count, "ms")

    def export(self, kind: str, count: int, target: str) -> None:
        with self._engine.connect() as connection:
            ids = connection.exec_driver_sql(f"SELECT id FROM messages ORDER BY id LIMIT {count}").scalars().all()
        selection = Selection(everything=True) if kind != "pdf" else Selection(message_ids=tuple(ids))
        _reset_high_water()
        with Stopwatch() as watch, _PageSetters() as setters:
            messages, failed = self._run(selection, kind)
        figure(f"{messages:,} messages as {kind}, signed and read back", watch.wall, "s", target)
        figure("  processor time, ours and Postgres'", watch.cpu + watch.server, "s")
        figure("  memory of the process", _high_water_bytes() / (1 << 20), "MiB", "≤ 300")
        if kind == "pdf":
            figure("  memory of the process that sets the pages", setters.bytes / (1 << 20), "MiB", "≤ 300")
        if failed:
            figure("  not exported", failed, "messages")

    def _run(self, selection: Selection, kind: str) -> tuple[int, int]:
        doorbell, folder = uuid7(), self._folder / f"out-{kind}"
        with self._engine.begin() as connection:
            export_id: UUID = exports.request(
                connection,
                self._resources.settings,
                LOCAL_OPERATOR,
                selection,
                PackageOptions(kind),
                folder=folder,
                local_doorbell=doorbell,
            )
        drive(self._resources, export_id, doorbell)
        with self._engine.connect() as connection:
            item = exports.load(connection, LOCAL_OPERATOR, export_id)
        assert item.state == "done", item.error
        return item.messages, item.failed


def _reset_high_water() -> None:
    """Without what was needed to fill the archive."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def _high_water_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(_HIGH_WATER))


class _PageSetters:
    """The largest memory of the processes that set pages, measured five times a second."""

    def __init__(self) -> None:
        self.bytes, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _PageSetters:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            for process in psutil.Process().children():
                with contextlib.suppress(psutil.Error):
                    if "archiver.exports.pdf.child" in process.cmdline():
                        self.bytes = max(self.bytes, process.memory_info().rss)


if __name__ == "__main__":
    main()
