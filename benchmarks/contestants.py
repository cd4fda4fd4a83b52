"""The programs that are compared, each as a person would run it, and what is watched while they run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.race_report import Turn
from tests.support.ports import free_port

_SYNCS = "fsync,fdatasync,syncfs,sync_file_range,msync"
_NOTMUCH = "[database]\npath={}\n[new]\ntags=new\n[user]\nname=x\nprimary_email=x@example.org\n"
_ROLES = (
    ("readers", "archiver.extract.serving"),
    ("search", "search-server"),
    ("indexing", "indexing"),
    ("ingestion", "ingestion"),
    ("web", " web"),
    ("command", " import "),
    ("Postgres", "postgres"),
    ("Valkey", "valkey"),
)
_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    _run: Callable[[Path, list[str]], Turn]

    def run(self, place: Path, trace: Path | None = None) -> Turn:
        """In an empty folder. With `trace`, strace counts what makes data durable, which slows it down."""
        return self._run(place, ["strace", "-f", "-qq", "-e", f"trace={_SYNCS}", "-o", str(trace)] if trace else [])


def contestants(maildir: Path) -> list[Contestant]:
    """Archiver, and each of the others that is installed."""
    known = [
        Contestant("archiver", lambda place, trace: _archiver(maildir, place, trace)),
        Contestant("mu", lambda place, trace: _mu(maildir, place, trace)),
        Contestant("notmuch", lambda place, trace: _notmuch(maildir, place, trace)),
    ]
    missing = [one.name for one in known if one.name != "archiver" and shutil.which(one.name) is None]
    if missing:
        print(f"  not installed: {', '.join(missing)}")
    return [one for one in known if one.name not in missing]


class ProcessWatch:
    """Processor time by role and the greatest memory of a process and its descendants; those that end are counted, too."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._spent: dict[int, tuple[str, float]] = {}
        self._before: dict[int, float] = {}
        self.peak_bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._look()
        self._before = {pid: spent for pid, (_, spent) in self._spent.items()}
        self.peak_bytes = 0
        over = threading.Event()
        thread = threading.Thread(target=self._look_again, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._look()

    def _look_again(self, over: threading.Event) -> None:
        while not over.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        memory = 0
        with suppress(psutil.NoSuchProcess):
            for process in self._processes():
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    times = process.cpu_times()
                    self._spent[process.pid] = (_role(process), times.user + times.system)
                    memory += process.memory_info().rss - process.memory_info().shared
        self.peak_bytes = max(self.peak_bytes, memory)

    def _processes(self) -> list[psutil.Process]:
        found = [self._root, *self._root.children(recursive=True)]
        return [process for process in found if process.pid != os.getpid() and process.name() != "strace"]

    def processor_seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for pid, (role, spent) in self._spent.items():
            found[role] = found.get(role, 0.0) + spent - self._before.get(pid, 0.0)
        return found


def _role(process: psutil.Process) -> str:
    line = " ".join(process.cmdline()) or process.name()
    return next((role for role, sign in _ROLES if sign in line), "other")


def _archiver(maildir: Path, place: Path, trace: list[str]) -> Turn:
    """`archiver import --wait` on a running stack: until every message can be found."""
    program = str(Path(sys.executable).parent / "archiver")
    port = free_port()
    environment = {**os.environ, "ARCHIVER_DATA": str(place / "data"), "ARCHIVER_PORT": str(port), "LOG_LEVEL": "warning"}
    with (place / "up.log").open("w") as log:
        up = psutil.Popen([*trace, program, "up"], env=environment, cwd=place, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(port, up)
        watch = ProcessWatch(psutil.Process())
        command = [program, "import", str(maildir), "--mailbox", "bench@example.org", "--wait", "--json"]
        fsyncs = _syncs_in(trace)
        with watch.watching():
            started = time.monotonic()
            told = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - started
        result = json.loads(told.stdout or "{}")
        if told.returncode or result["archived"] != len(list((maildir / "cur").iterdir())):
            raise SystemExit(f"archiver import failed: {told.stdout} {told.stderr}")
        fsyncs = _syncs_in(trace) - fsyncs
    finally:
        for process in up.children() if trace else [up]:  # strace itself would leave it running
            process.terminate()
        up.wait()
    data = place / "data"
    disk = {"packs": _size(data, "*.pack"), "index": _size(data / "search"), "database": _size(data / "postgres" / "base")}
    return Turn("archiver", seconds, watch.processor_seconds(), watch.peak_bytes, disk, fsyncs)


def _wait_until_ready(port: int, up: psutil.Popen) -> None:
    while up.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
            return
        time.sleep(0.1)
    raise SystemExit("archiver up ended before it was ready")


def _notmuch(maildir: Path, place: Path, trace: list[str]) -> Turn:
    config = place / "config"
    config.write_text(_NOTMUCH.format(maildir))
    try:
        seconds, watch = _timed([*trace, "notmuch", "new"], {"NOTMUCH_CONFIG": str(config)})
        spent, peak = watch.processor_seconds(), watch.peak_bytes
        return Turn("notmuch", seconds, spent, peak, {"index": _size(maildir / ".notmuch")}, _syncs_in(trace))
    finally:
        shutil.rmtree(maildir / ".notmuch", ignore_errors=True)


def _mu(maildir: Path, place: Path, trace: list[str]) -> Turn:
    home = f"--muhome={place / 'mu'}"
    subprocess.run(
        ["mu", "init", home, f"--maildir={maildir}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    seconds, watch = _timed([*trace, "mu", "index", home], {})
    spent, peak = watch.processor_seconds(), watch.peak_bytes
    return Turn("mu", seconds, spent, peak, {"index": _size(place / "mu")}, _syncs_in(trace))


def _timed(command: list[str], variables: dict[str, str]) -> tuple[float, ProcessWatch]:
    started = time.monotonic()
    quiet = subprocess.DEVNULL
    process = psutil.Popen(command, env={**os.environ, **variables}, stdout=quiet, stderr=quiet)
    watch = ProcessWatch(process)
    with watch.watching():
        if process.wait():
            raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return time.monotonic() - started, watch


def _syncs_in(trace: list[str]) -> int:
    """How many calls strace has written down until now."""
    if not trace:
        return 0
    calls = re.findall(rf"\b(?:{_SYNCS.replace(',', '|')})\(", Path(trace[-1]).read_text())
    return len(calls)


def _size(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())
