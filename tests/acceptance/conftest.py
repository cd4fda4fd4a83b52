"""Whole processes: `archiver up` on a data folder and a port of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from archiver.config import Settings
from archiver.supervisor.control import ask_status
from archiver.supervisor.folder import DataFolder
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually, patient


class Archiver:
    """One installation: a data folder, a port, and the commands on it."""

    def __init__(self, data: Path, **variables: str) -> None:
        self.data, self.port = data, free_port()
        own = {name.upper() for name in Settings.model_fields}
        clean = {name: value for name, value in os.environ.items() if name not in own}
        own_values = {"ARCHIVER_DATA": str(data), "ARCHIVER_PORT": str(self.port), "SAMPLE_SOURCES": "true"}
        self.environment = {**clean, **own_values, **variables}
        self.process: subprocess.Popen[str] | None = None
        self.log = data.with_suffix(".log")

    def command(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "archiver", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patient(seconds),
            cwd=self.data.parent,
        )

    def start(self) -> Archiver:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "archiver", "up"],
                env=self.environment,
                stdout=log,
                stderr=log,
                text=True,
                cwd=self.data.parent,
            )
        eventually(self._ready_or_dead, what=f"ready: {self.log.read_text()[-2000:]}")
        assert self.process.poll() is None, self.log.read_text()
        return self

    def _ready_or_dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or "ready in" in self.log.read_text()

    def status(self) -> dict[str, Any]:
        found = ask_status(DataFolder(self.data))
        assert found is not None
        return found

    def pid(self, part: str) -> int | None:
        return next((entry["pid"] for entry in self.status()["parts"] if entry["name"] == part), None)

    def processes(self) -> list[psutil.Process]:
        """Everything below the supervisor."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=DEADLINE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ready(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/readyz")[1]))

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            self.process.kill()
            self.process.wait()


@pytest.fixture
def archiver(tmp_path: Path) -> Iterator[Archiver]:
    """Not started; whatever was started is stopped afterwards."""
    installation = Archiver(tmp_path / "data")
    yield installation
    installation.clean_up()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiver]:
    """One that runs for all tests of a module, which leave it as it was."""
    installation = Archiver(tmp_path_factory.mktemp("running") / "data").start()
    yield installation
    installation.clean_up()
