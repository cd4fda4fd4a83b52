"""A search server on a port and a folder of its own, which can be killed and started again at the same address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import requests

from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS, eventually

KEY = "a-master-key-for-tests"
_PROGRAM = """
import sys
from pathlib import Path
from archiver.search_server.routes import system
from archiver.search_server.server import serve
system.VERSION = sys.argv[4] or system.VERSION
serve(Path(sys.argv[1]), sys.argv[2], port=int(sys.argv[3]), ready=lambda url: None)
"""


class SearchAt:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.version = ""
        """What it reports; empty for its own."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        return {"MEILI_HOST": self.url, "MEILI_MASTER_KEY": KEY}

    def start(self) -> SearchAt:
        """Unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return self
        command = [sys.executable, "-c", _PROGRAM, str(self.folder), KEY, str(self.port), self.version]
        self.process = subprocess.Popen(command)
        eventually(self._answers_or_ended, what="a search server", pause=0.02)
        assert self.process.poll() is None, "the search server ended"
        return self

    def _answers_or_ended(self) -> bool:
        assert self.process is not None
        try:
            return self.process.poll() is not None or requests.get(f"{self.url}/health", timeout=5).ok
        except requests.RequestException:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_SECONDS)
