"""What survives a process: how often a trouble has happened, and which messages were downloaded."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CallCounter:
    """Counts in small files, one byte per event; exact with any number of processes."""

    path: Path | None

    def take(self, name: str, times: int | None) -> bool:
        """Counts `name` and returns True while it has happened fewer than `times` times. Always True without a limit."""
        if times is None:
            return True
        assert self.path is not None, "the settings were validated"
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / hashlib.sha256(name.encode()).hexdigest()[:24]).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_size >= times:
                return False
            file.write(b".")
        return True


@dataclass(frozen=True, slots=True)
class Download:
    address: str
    key: str


@dataclass(frozen=True, slots=True)
class Journal:
    """One line per downloaded message, from any process."""

    path: Path | None

    def note(self, address: str, keys: Iterable[str]) -> None:
        lines = "".join(f"{address}\t{key}\n" for key in keys)
        if self.path is None or not lines:
            return
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, lines.encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[Download]:
        if self.path is None or not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        return [Download(*line.split("\t", 1)) for line in lines]
