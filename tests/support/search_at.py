"""A search server on a port and a folder of its own, which can be killed and started again at the same address."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import requests

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
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
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
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if requests.get(f"{self.url}/health", timeout=5).ok:
                    return self
            except requests.RequestException:
                time.sleep(0.02)
        raise AssertionError("the search server does not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
