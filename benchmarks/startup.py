"""How long `make up` takes, warm and cold, and what the idle stack costs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import figure, load

ROOT = Path(__file__).parents[1]
IDLE_SECONDS = 30


def main() -> None:
    load()
    with tempfile.TemporaryDirectory(prefix="archiver-bench-") as folder:
        place = Path(folder)
        print("  first start (new data folder, warm venv)")
        with Up(ROOT, place / "data") as up:
            figure("make up to ready, first start", up.seconds, "s", "≤ 10")
        with Up(ROOT, place / "data") as up:
            figure("make up to ready, warm", up.seconds, "s", "≤ 10")
            measure_idle(up)
        copy_tracked_files(place / "clone")
        with Up(place / "clone", place / "data-cold") as up:
            figure("make up to ready, new clone and venv, warm package cache", up.seconds, "s", "≤ 120")


class Up:
    """`make up` as a person types it."""

    def __init__(self, folder: Path, data: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._command = ["make", "up"]
        self._options: dict[str, Any] = {
            "cwd": folder,
            "env": {**os.environ, "ARCHIVER_DATA": str(data), "ARCHIVER_PORT": str(port)},
        }
        self.seconds = 0.0

    def __enter__(self) -> Up:
        started = time.monotonic()
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **self._options
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("ready in"):
                self.seconds = time.monotonic() - started
                return self
        raise SystemExit(f"it did not start:\n{''.join(said)}")

    def __exit__(self, *_: object) -> None:
        for process in self.tree():
            if "archiver" in " ".join(process.cmdline()) and "up" in process.cmdline():
                process.send_signal(signal.SIGINT)
                break
        self.process.communicate(timeout=60)

    def tree(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]


def measure_idle(up: Up) -> None:
    time.sleep(5)  # what belongs to the start is over
    tree = up.tree()
    before = {process.pid: sum(process.cpu_times()[:2]) for process in tree}
    time.sleep(IDLE_SECONDS)
    used = sum(sum(process.cpu_times()[:2]) - before[process.pid] for process in tree)
    figure("idle CPU of the whole stack", 100 * used / IDLE_SECONDS, "% of core", "≤ 3")
    memory = {process.pid: process.memory_full_info() for process in tree}
    figure("resident memory, shared pages counted once", sum(info.pss for info in memory.values()) / 2**20, "MiB", "≤ 700")
    figure("resident memory, every process's RSS added up", sum(info.rss for info in memory.values()) / 2**20, "MiB")
    for process in sorted(tree, key=lambda process: -memory[process.pid].pss)[:8]:
        used_by_one = sum(process.cpu_times()[:2]) - before[process.pid]
        name = " ".join(process.cmdline())[-60:]
        print(f"      {memory[process.pid].pss / 2**20:6.1f} MiB  {100 * used_by_one / IDLE_SECONDS:5.2f} %  {name}")


def copy_tracked_files(target: Path) -> None:
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in names.stdout.splitlines():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


if __name__ == "__main__":
    main()
