"""A simulated connection: it can be waited on, can hang, and can be closed from another thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from connectors.errors import Unavailable

_LOOK_SECONDS = 0.05
"""How often a wait checks whether the job has to stop."""


class FakeConnection:
    """May be closed from any thread, at any time, more than once."""

    def __init__(self, down_path: Path | None = None) -> None:
        self._down_path = down_path
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def ensure_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("the connection was closed")
        if self._down_path and self._down_path.exists():
            raise Unavailable("the server does not answer")

    def wait(self, seconds: float, should_stop: Callable[[], bool]) -> None:
        """Ends early when the job has to stop, so that fetched messages can still be stored."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not should_stop():
            if self._closed.wait(min(left, _LOOK_SECONDS)):
                break
        self.ensure_open()

    def wait_while_exists(self, path: Path, should_stop: Callable[[], bool]) -> None:
        while path.exists() and not should_stop():
            if self._closed.wait(_LOOK_SECONDS):
                break
        self.ensure_open()

    def hang(self) -> None:
        """Blocks in a read that never returns, as with a dead server."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with self._lock:
                self.ensure_open()
                self._sockets.append(theirs)
            ours.recv(1)
            with self._lock:
                self._sockets.remove(theirs)
        raise Unavailable("the connection was closed while waiting for the server")

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            for end in self._sockets:
                end.shutdown(socket.SHUT_RDWR)
