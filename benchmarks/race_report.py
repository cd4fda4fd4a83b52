"""What a race between programs found: medians, ratios to Archiver, a table, a JSON file and a chart."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from archiver import __version__
from archiver.maintenance.checks.interpreter import is_optimised

_VERSIONS = {"mu": ["mu", "--version"], "notmuch": ["notmuch", "--version"]}


@dataclass(frozen=True, slots=True)
class Turn:
    """One program, once."""

    name: str
    seconds: float
    processor_seconds: dict[str, float]
    """By role of the process."""
    peak_bytes: int
    disk_bytes: dict[str, int]
    fsyncs: int
    """0 unless they were counted, which slows a program down: such a turn is not in the race."""


@dataclass
class RaceReport:
    mail: str
    messages: int
    mail_bytes: int
    turns: list[Turn] = field(default_factory=list)
    fsyncs: dict[str, int] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        self.turns.append(turn)
        print(f"  {turn.name:<10} {turn.seconds:7.1f} s  {self.messages / turn.seconds:8,.0f} messages/s", flush=True)

    def add_fsyncs(self, name: str, count: int) -> None:
        self.fsyncs[name] = count

    def names(self) -> list[str]:
        return list(dict.fromkeys(turn.name for turn in self.turns))

    def median(self, name: str, value: Callable[[Turn], float]) -> float:
        return statistics.median(value(turn) for turn in self.turns if turn.name == name)

    def rate(self, name: str) -> float:
        return self.messages / self.median(name, lambda turn: turn.seconds)

    def processor_micros(self, name: str) -> float:
        return 1e6 * self.median(name, lambda turn: sum(turn.processor_seconds.values())) / self.messages

    def by_role(self, name: str) -> dict[str, float]:
        roles = sorted({role for turn in self.turns if turn.name == name for role in turn.processor_seconds})
        return {role: self.median(name, lambda turn, role=role: turn.processor_seconds.get(role, 0.0)) for role in roles}  # type: ignore[misc]

    def table(self) -> str:
        lines = [
            "| program | messages/s | Archiver / it | processor, per message | memory | bytes on disk, per message | fsyncs |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [self._line(name) for name in self.names()]
        lines += ["", "Processor time of Archiver by process, in µs for a message: " + self._roles()]
        lines += ["", f"{self.messages:,} messages, {self.mail_bytes / 1e6:.0f} MB ({self.mail}); {self._machine()}"]
        return "\n".join(lines)

    def _line(self, name: str) -> str:
        parts = {part: self.median(name, lambda turn, part=part: turn.disk_bytes[part]) for part in self._last(name).disk_bytes}  # type: ignore[misc]
        stored = ", ".join(f"{part} {size / self.messages:,.0f}" for part, size in parts.items())
        memory = self.median(name, lambda turn: turn.peak_bytes) / 2**20
        fsyncs = self.fsyncs.get(name)
        ratio = "" if name == "archiver" else f"{self.rate('archiver') / self.rate(name):.2f} ×"
        return (
            f"| {name} | {self.rate(name):,.0f} | {ratio} | {self.processor_micros(name):,.0f} µs | {memory:,.0f} MiB"
            f" | {stored} | {'' if fsyncs is None else f'{fsyncs:,}'} |"
        )

    def _last(self, name: str) -> Turn:
        return [turn for turn in self.turns if turn.name == name][-1]

    def _roles(self) -> str:
        return ", ".join(f"{role} {1e6 * spent / self.messages:,.0f}" for role, spent in self.by_role("archiver").items())

    def _machine(self) -> str:
        others = ", ".join(versions().values()) or "no other program"
        built = "optimised" if is_optimised() else "not optimised"
        return (
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end; Archiver {__version__},"
            f" Python {platform.python_version()} ({built}), {others}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "mail": {"name": self.mail, "messages": self.messages, "bytes": self.mail_bytes},
            "python": {
                "version": sys.version,
                "configured_with": sysconfig.get_config_var("CONFIG_ARGS"),
                "optimised": is_optimised(),
            },
            "versions": {"archiver": __version__, **versions()},
            "medians": {
                name: {
                    "messages_per_second": round(self.rate(name), 1),
                    "processor_micros_per_message": round(self.processor_micros(name), 1),
                    "processor_seconds": self.by_role(name),
                    "fsyncs": self.fsyncs.get(name),
                }
                for name in self.names()
            },
            "turns": [asdict(turn) for turn in self.turns],
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "peers.json").write_text(json.dumps(self.as_json(), indent=2) + "\n")
        (folder / "peers.md").write_text(self.table() + "\n")
        (folder / "peers.svg").write_text(chart({name: self.rate(name) for name in self.names()}))
        print(f"  written: {folder}/peers.json, peers.md, peers.svg")


def versions() -> dict[str, str]:
    found = {}
    for name, command in _VERSIONS.items():
        if shutil.which(name):
            told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            found[name] = told.splitlines()[0] if told else name
    return found


def chart(rates: dict[str, float]) -> str:
    """Bars of messages per second, readable on light and dark pages."""
    widest, height = max(rates.values()), 34
    bars = []
    for number, (name, rate) in enumerate(rates.items()):
        top, width = 12 + number * height, max(440 * rate / widest, 2)
        colour = "#2f6fde" if name == "archiver" else "#8a94a6"
        bars.append(
            f'<text x="88" y="{top + 16}" text-anchor="end">{name}</text>'
            f'<rect x="96" y="{top}" width="{width:.0f}" height="22" rx="3" fill="{colour}"/>'
            f'<text x="{104 + width:.0f}" y="{top + 16}">{rate:,.0f}/s</text>'
        )
    label = "Messages per second from file to search hit"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {20 + height * len(rates)}" font-family="sans-serif"'
        f' font-size="14" fill="#6b7280" role="img" aria-label="{label}">{"".join(bars)}</svg>\n'
    )
