"""Connections that are closed while somebody reads from them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from connectors.errors import Unavailable
from connectors.http import HttpClient
from tests.integration.microsoft.conftest import Box
from tests.support.graph_server.running import GraphServer
from tests.support.waiting import DEADLINE_SECONDS


@contextlib.contextmanager
def _reading(box: Box) -> Iterator[None]:
    """A download that hangs, until its connector is closed; it ends with Unavailable."""
    raised: list[BaseException] = []

    def read() -> None:
        try:
            for _ in box.connect().fetch(box.ref, {}, box.held.known):
                pass
        except BaseException as error:
            raised.append(error)

    before = box.server.calls().get("value", 0)
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    while box.server.calls().get("value", 0) < before + 4:
        assert thread.is_alive()
    yield
    thread.join(DEADLINE_SECONDS)
    assert [type(error) for error in raised] == [Unavailable]


def test_a_connection_that_is_closed_takes_nothing_from_those_that_come_after_it(box: Box) -> None:
    """They get its number, and nobody may still read from that."""
    for number in range(1, 31):
        box.do("change", number, attached=True)
    box.server.control(trouble={"hang": "value"})
    for _ in range(30):
        with _reading(box):
            box.opened[-1].close()
            pairs = [socket.socketpair() for _ in range(10)]
            for ours, theirs in pairs:
                ours.sendall(b"x" * 100)
                theirs.sendall(b"y" * 100)
        for ours, theirs in pairs:
            ours.settimeout(DEADLINE_SECONDS)
            theirs.settimeout(DEADLINE_SECONDS)
            assert (theirs.recv(200), ours.recv(200)) == (b"x" * 100, b"y" * 100)
            ours.close()
            theirs.close()


def test_a_line_that_was_closed_stays_closed(graph: GraphServer) -> None:
    line = HttpClient(graph.ca_file)
    with line.request("GET", f"{graph.url}/_control") as response:
        line.close()
        with pytest.raises(Unavailable), line.request("GET", f"{graph.url}/_control"):
            pass
        assert response.status_code == 200
    line.close()
    with pytest.raises(Unavailable):
        line.ensure_open()
