"""What a second sync of many folders costs, counted."""

from __future__ import annotations

import socket

from tests.integration.imap.test_dovecot import everything, opened
from tests.support.dovecot import PASSWORD
from tests.support.imap_server import Script, imap_server
from tests.support.other_imap import OtherImap

_LOGIN = 1


def test_a_second_sync_of_a_thousand_folders_takes_one_round_trip(cyrus_server: OtherImap) -> None:
    """LIST with the status of all folders (LIST-STATUS), and no folder is opened."""
    make_folders(cyrus_server.port, "thousand", 1000)
    assert _second_sync(cyrus_server.settings("thousand")) == _LOGIN + 1


def test_a_server_without_list_status_takes_two() -> None:
    """LIST, and all STATUS commands at once."""
    script = Script({"INBOX": {}, **{f"Box {number}": {} for number in range(1000)}})
    with imap_server(script) as port:
        settings = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "alice@example.org"}
        assert _second_sync(settings) == _LOGIN + 1 + 2, (
            "and the capabilities after the login, which it does not tell by itself"
        )


def _second_sync(settings: dict[str, object]) -> int:
    """How often it waits for the server."""
    with opened(settings) as connector:
        first = everything(connector)
        assert len(first.state) >= 1000
    with opened(settings) as connector:
        assert not everything(connector, first.state).state
    return connector.round_trips


def make_folders(port: int, user: str, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rb") as answers:
        line.sendall(b"a LOGIN %s %s\r\n" % (user.encode(), PASSWORD.encode()))
        while not answers.readline().startswith(b"a OK"):
            pass
        for start in range(0, count, 100):  # pipelined, or it would take a second for each fifty
            line.sendall(b"".join(b'c%d CREATE "Box %04d"\r\n' % (number, number) for number in range(start, start + 100)))
            while not answers.readline().startswith(b"c%d " % (start + 99)):
                pass
