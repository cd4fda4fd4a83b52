"""`make soak`: half an hour of imports while parts are killed. Memory stays flat, no descriptor leaks, and nothing is lost.

python -m tests.soak [--minutes 30] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually

_KILLED = ("ingestion", "indexing", "valkey", "search", "postgres", "web")
_FAULT_SECONDS = 20.0
_IMPORT_SECONDS = 6.0
_SAMPLE_SECONDS = 5.0
_MESSAGES = 40
_MAY_GROW = 1.25
_MAY_LEAK = 12


@dataclass(slots=True)
class Samples:
    """Memory and descriptors of each process, by part and pid: a part that was killed begins again."""

    memory: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    descriptors: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, archiver: Archiver) -> None:
        assert archiver.process is not None
        found = {entry["name"]: entry["pid"] for entry in archiver.status()["parts"] if entry["pid"]}
        for name, pid in {**found, "supervisor": archiver.process.pid}.items():
            try:
                process = psutil.Process(pid)
                self.memory[name, pid].append(process.memory_info().rss)
                self.descriptors[name, pid].append(process.num_fds())
            except psutil.Error:
                continue

    def problems(self) -> list[str]:
        """Of processes that lived long enough to judge: the last third against the third before it."""
        found = []
        for name, values, limit in (
            ("memory", self.memory, lambda before: before * _MAY_GROW + (32 << 20)),
            ("descriptors", self.descriptors, lambda before: before + _MAY_LEAK),
        ):
            for (part, pid), samples in values.items():
                third = len(samples) // 3
                if third < 4:
                    continue
                before, after = statistics.median(samples[third : 2 * third]), statistics.median(samples[-third:])
                if after > limit(before):
                    found.append(f"{part} ({pid}): {name} grew from {before:,.0f} to {after:,.0f}")
        return found


class Soak:
    def __init__(self, folder: Path, seed: int) -> None:
        self.archiver, self.folder = Archiver(folder / "data"), folder
        self.random, self.samples = random.Random(seed), Samples()
        self.imports = self.faults = 0

    def run(self, seconds: float) -> list[str]:
        self.archiver.start()
        try:
            self._play(time.monotonic() + seconds)
            return [*self._lost(), *self.samples.problems()]
        finally:
            self.archiver.clean_up()

    def _play(self, deadline: float) -> None:
        every: list[tuple[float, Callable[[], None]]] = [
            (_IMPORT_SECONDS, self._import),
            (_FAULT_SECONDS, self._kill),
            (_SAMPLE_SECONDS, lambda: self.samples.take(self.archiver)),
        ]
        due = [time.monotonic() + pause for pause, _ in every]
        while time.monotonic() < deadline:
            for number, (pause, act) in enumerate(every):
                if time.monotonic() >= due[number]:
                    act()
                    due[number] = time.monotonic() + pause
            time.sleep(0.2)

    def _import(self) -> None:
        """A file of new messages. The command may meet a part that was just killed: it is repeated until it was accepted."""
        path = self.folder / f"{self.imports}.mbox"
        path.write_bytes(b"".join(self._message(self.imports, number) for number in range(_MESSAGES)))
        arguments = ("import", str(path), "--mailbox", f"soak{self.imports % 5}@example.org")
        eventually(lambda: self.archiver.command(*arguments).returncode == 0, what=f"import {self.imports}", pause=1.0)
        self.imports += 1

    def _message(self, run: int, number: int) -> bytes:
        text = " ".join(self.random.choice(("invoice", "order", "meeting", "lamp", "report")) for _ in range(200))
        head = f"From a@example.org Thu Jan  1 00:00:00 2026\nMessage-ID: <{run}.{number}@soak>\nSubject: soak {run} {number}\n"
        return f"{head}From: a@example.org\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n\n{text}\n\n".encode()

    def _kill(self) -> None:
        pid = self.archiver.pid(part := self.random.choice(_KILLED))
        if pid:
            os.kill(pid, signal.SIGKILL)
            self.faults += 1
            print(f"  {time.strftime('%H:%M:%S')} killed {part} ({pid})", flush=True)

    def _lost(self) -> list[str]:
        """After everything has settled: every message is there, searchable and whole."""
        expected = self.imports * _MESSAGES
        eventually(lambda: self.archiver.ready().get("ready"), what="all parts")

        def settled() -> bool:
            done = self.archiver.command("status", "--json")
            archive = json.loads(done.stdout).get("archive") if done.stdout else None
            return bool(archive and archive["messages"] >= expected and not archive["not_indexed"])

        found = []
        try:
            eventually(settled, 600, f"{expected} searchable messages", pause=2.0)
        except AssertionError as error:
            found.append(f"lost: {error}")
        counted = json.loads(self.archiver.command("status", "--json").stdout)["archive"]
        if counted["messages"] != expected:
            found.append(f"lost or doubled: {counted['messages']} messages instead of {expected}")
        verified = self.archiver.command("verify", "--full", "--json", seconds=600)
        if verified.returncode:
            found.append(f"verify: {verified.stdout[-500:]}{verified.stderr[-500:]}")
        return found


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--seed", type=int, default=None, help="of the faults; printed, to repeat a run")
    given = options.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(10**6)
    print(f"soak of {given.minutes:g} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="archiver-soak-") as place:
        soak = Soak(Path(place), seed)
        problems = soak.run(given.minutes * 60)
    print(f"{soak.imports * _MESSAGES:,} messages in {soak.imports} imports, {soak.faults} kills", flush=True)
    for problem in problems:
        print(f"PROBLEM {problem}", flush=True)
    print("nothing lost, nothing leaked" if not problems else f"{len(problems)} problems", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
