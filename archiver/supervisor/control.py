"""Finds the stack that runs on a data folder, and keeps it running as long as a command needs it.

The supervisor listens on a unix socket in the data folder. A request is a line of JSON; `hold` is answered when all requested
parts are ready, and holds until the connection ends, however the client ends. A stack that a command has started stops when no
client holds it any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from archiver.errors import ArchiverError, NotReady
from archiver.supervisor.folder import DataFolder

START_SECONDS = 120.0


def _connect(folder: DataFolder) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(folder.control_socket))
    except OSError:
        connection.close()
        return None
    return connection


def ask_status(folder: DataFolder) -> dict[str, Any] | None:
    """The state of the stack on this folder; None if none runs."""
    connection = _connect(folder)
    if connection is None:
        return None
    connection.settimeout(5)
    with connection, connection.makefile("rw") as lines:
        try:
            lines.write('{"do": "status"}\n')
            lines.flush()
            answer = json.loads(lines.readline() or "null")
        except (OSError, ValueError):
            return None
    return dict(answer) if answer else None


@contextlib.contextmanager
def hold_stack(folder: DataFolder, *needs: str, notify: Callable[[str], None] = lambda _: None) -> Iterator[dict[str, str]]:
    """Yields the addresses of the stack on this folder, which runs for the length of the block; starts it if needed."""
    deadline = time.monotonic() + START_SECONDS
    starter: subprocess.Popen[bytes] | None = None
    while True:
        connection = _connect(folder)
        if connection is not None:
            with connection, connection.makefile("rw") as lines:
                answer = _request_hold(lines, needs)
                if answer is not None:
                    for notice in answer["notices"]:
                        notify(notice)
                    yield answer["environment"]
                    return
        elif starter is None:
            notify("starting the embedded servers …")
            starter = _start_detached(folder)
        elif starter.poll() is not None:
            if starter.returncode != 0 and _connect_soon(folder) is None:
                raise NotReady(_startup_error(folder))
            starter = None
        if time.monotonic() > deadline:
            raise NotReady(f"the embedded servers did not start within {START_SECONDS:.0f} s; see {folder.logs}")
        time.sleep(0.05)


def _request_hold(lines: Any, needs: tuple[str, ...]) -> dict[str, Any] | None:
    """None if the stack stopped before it answered."""
    try:
        lines.write(json.dumps({"do": "hold", "needs": needs}) + "\n")
        lines.flush()
        answer = json.loads(lines.readline() or "null")
    except (OSError, ValueError):
        return None
    if answer is None:
        return None
    if "error" in answer:
        raise ArchiverError(answer["error"])
    return dict(answer)


def _start_detached(folder: DataFolder) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ARCHIVER_DATA": str(folder.path)}
    with (folder.logs / "stack.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "archiver", "up", "--while-used"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _connect_soon(folder: DataFolder) -> socket.socket | None:
    """Another command may have started it first."""
    for _ in range(20):
        connection = _connect(folder)
        if connection is not None:
            connection.close()
            return connection
        time.sleep(0.1)
    return None


def _startup_error(folder: DataFolder) -> str:
    lines = (folder.logs / "stack.log").read_text(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("archiver: ")] or lines[-1:]
    return errors[-1].removeprefix("archiver: ") if errors else f"the embedded servers did not start; see {folder.logs}"
