"""A search server as a process of its own, for tests that talk to it over HTTP, and kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import meilisearch
import requests

from tests.support.waiting import DEADLINE_SECONDS, eventually

KEY = "a-master-key-for-tests"
PROGRAM = """
import sys
from pathlib import Path
from archiver.search_server.server import serve
serve(Path(sys.argv[1]), sys.argv[2] or None, port=0, ready=lambda url: print(url, flush=True))
"""


class SearchProcess:
    """Starts at once; `kill` is kill -9, `stop` is SIGTERM."""

    def __init__(self, data: Path, key: str = KEY, before: str = "") -> None:
        self.key = key
        program = before + PROGRAM
        self.process = subprocess.Popen([sys.executable, "-c", program, str(data), key], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, f"the server ended with {self.process.wait()}"
        self.client = meilisearch.Client(self.url, key)
        eventually(lambda: is_healthy(self.url), pause=0.005)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(DEADLINE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def is_healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).json() == {"status": "available"}
    except requests.RequestException:
        return False


def ended(client: meilisearch.Client, task_uid: int) -> Any:
    return client.wait_for_task(task_uid, timeout_in_ms=int(DEADLINE_SECONDS * 1000), interval_in_ms=5)


def finished(client: meilisearch.Client, task: Any, status: str = "succeeded") -> Any:
    """The task, once it has ended as it should."""
    done = ended(client, task.task_uid)
    assert done.status == status, done.error
    return done
