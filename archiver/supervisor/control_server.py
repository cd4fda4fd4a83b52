"""The supervisor's side of the control socket; archiver.supervisor.control describes the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from archiver.supervisor.control import START_SECONDS
from archiver.supervisor.parts import Stack
from archiver.supervisor.supervisor import Supervisor

_UNUSED_SECONDS = 1.0


class ControlServer:
    """Runs in threads of its own and leaves all changes to the supervisor's main thread."""

    def __init__(
        self,
        supervisor: Supervisor,
        stack: Stack,
        path: Path,
        *,
        mode: str,
        stop_when_unused: bool,
        notices: list[str],
        page: str | None = None,
    ) -> None:
        self._supervisor, self._stack, self._path = supervisor, stack, path
        self._mode, self._stop_when_unused, self._notices, self._page = mode, stop_when_unused, notices, page
        self._holders: set[socket.socket] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        self._path.unlink(missing_ok=True)  # left by a crash: this process holds the folder's lock
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(mask)
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True, name="control").start()
        if self._stop_when_unused:
            self._stop_later(START_SECONDS)

    def notify_change(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rw") as lines:
            request = json.loads(lines.readline())
            if request.get("do") == "hold":
                self._hold(connection, request, lines)
            else:
                self._answer(lines, self.status())

    @staticmethod
    def _answer(lines: Any, answer: dict[str, Any]) -> None:
        lines.write(json.dumps(answer) + "\n")
        lines.flush()

    def status(self) -> dict[str, Any]:
        children = self._supervisor.children
        return {
            "pid": os.getpid(),
            "what": self._mode,
            "page": self._page,
            "held": len(self._holders),
            "ready": self._supervisor.ready,
            "parts": [
                {
                    "name": child.part.name,
                    "state": child.state,
                    "pid": child.process.pid if child.process and child.alive else None,
                    "restarts": child.restarts,
                    "seconds": round(time.monotonic() - child.since, 1),
                    "note": child.note,
                }
                for child in children
            ],
        }

    def _hold(self, connection: socket.socket, request: dict[str, Any], lines: Any) -> None:
        self._holders.add(connection)
        try:
            if "workers" in request.get("needs", ()):
                self._supervisor.request(lambda: self._supervisor.add(self._stack.workers))
            self._answer(lines, self._wait_until_ready(request.get("needs", ())))
            lines.readline()  # blocks until the client disconnects
        finally:
            self._holders.discard(connection)
            if self._stop_when_unused and not self._holders:
                self._stop_later(_UNUSED_SECONDS)

    def _wait_until_ready(self, needs: list[str]) -> dict[str, Any]:
        wanted = {part.name for part in self._stack.servers}
        if "workers" in needs:
            wanted |= {part.name for part in self._stack.workers}
        deadline = time.monotonic() + START_SECONDS
        with self._changed:
            while not wanted <= {child.part.name for child in self._supervisor.children if child.ready}:
                if self._supervisor.failure:
                    return {"error": self._supervisor.failure}
                if not self._changed.wait(timeout=1.0) and time.monotonic() > deadline:
                    return {
                        "error": f"the stack was not ready within {START_SECONDS:.0f} s; see {self._path.parent.parent}/logs"
                    }
        notices, self._notices = self._notices, []
        return {"environment": self._stack.environment, "notices": notices}

    def _stop_later(self, seconds: float) -> None:
        timer = threading.Timer(seconds, lambda: self._supervisor.request(self._stop_if_unused))
        timer.daemon = True
        timer.start()

    def _stop_if_unused(self) -> None:
        if not self._holders:
            self._path.unlink(missing_ok=True)  # the next command starts a new stack instead of using this one
            self._supervisor.stop()
