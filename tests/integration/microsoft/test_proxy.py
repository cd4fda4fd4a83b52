"""Proxies of the environment are honoured, for tokens and for mail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from connectors.errors import Unavailable
from tests.integration.microsoft.conftest import Box, connect
from tests.support.graph_server.running import GraphServer
from tests.support.waiting import DEADLINE_SECONDS


@contextmanager
def tunnel(seen: list[str]) -> Iterator[str]:
    """A proxy that connects to wherever it is told (RFC 9110, section 9.3.6)."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            target = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            seen.append(target)
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_copy, args=(far, self.connection), daemon=True)
                back.start()
                _copy(self.connection, far)
                back.join(DEADLINE_SECONDS)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_everything_goes_through_the_proxy(graph: GraphServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with tunnel(seen) as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        connector = connect(graph)
        connector.check()
        connector.close()
        assert len(box.sync().hashes) == 30
        box.opened[-1].close()
    assert set(seen) == {graph.url.removeprefix("https://")}
    assert len(seen) >= 2
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="no connection"):
        box.sync()


def test_and_around_it_where_that_is_said(graph: GraphServer, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert len(box.sync().hashes) == 30
