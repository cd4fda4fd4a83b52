"""A line between a client and a server that can be slow, stop, break, and count."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """`stall_after` and `drop_after`: bytes from the server, on each connection (the first `times` of them)."""

    def __init__(
        self, port: int, stall_after: int | None = None, drop_after: int | None = None, times: int = 10**9, delay: float = 0.0
    ) -> None:
        self._target = port
        self._stall_after, self._drop_after, self._times, self._delay = stall_after, drop_after, times, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self.turns = 0
        """How often the client spoke after the server had."""
        self.sent = b""
        """Everything that clients said."""
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _end(client)
                continue
            self.connections += 1
            self._sockets += [client, server]
            troubled = self.connections <= self._times
            state = {"server_spoke": True}
            threading.Thread(target=self._to_server, args=(client, server, state), daemon=True).start()
            threading.Thread(target=self._to_client, args=(server, client, state, troubled), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, state: dict[str, bool]) -> None:
        try:
            while data := client.recv(1 << 16):
                if state["server_spoke"]:
                    self.turns += 1
                    state["server_spoke"] = False
                self.sent += data
                time.sleep(self._delay)
                server.sendall(data)
        except OSError:
            pass
        finally:
            _end(client, server)

    def _to_client(self, server: socket.socket, client: socket.socket, state: dict[str, bool], troubled: bool) -> None:
        passed = 0
        try:
            while data := server.recv(1 << 14):
                state["server_spoke"] = True
                passed += len(data)
                if troubled and self._drop_after is not None and passed > self._drop_after:
                    client.sendall(data[: len(data) // 2])
                    break
                if troubled and self._stall_after is not None and passed > self._stall_after:
                    threading.Event().wait()
                client.sendall(data)
        except OSError:
            pass
        finally:
            _end(client, server)

    def close(self) -> None:
        self._listener.close()
        _end(*self._sockets)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def proxy(
    port: int, stall_after: int | None = None, drop_after: int | None = None, times: int = 10**9, delay: float = 0.0
) -> Iterator[Proxy]:
    made = Proxy(port, stall_after, drop_after, times, delay)
    try:
        yield made
    finally:
        made.close()
