"""What a second sync of many folders costs, counted on real servers."""

from __future__ import annotations

import socket

import pytest

from tests.integration.imap.test_dovecot import everything, opened
from tests.support.dovecot import PASSWORD, Dovecot
from tests.support.other_imap import OtherImap


@pytest.mark.parametrize("kind", ["dovecot", "plain_dovecot", "cyrus_server"])
def test_a_second_sync_of_a_thousand_folders_takes_at_most_two_round_trips(kind: str, request: pytest.FixtureRequest) -> None:
    """One with LIST-STATUS; two without it, because all STATUS commands are sent at once."""
    server: Dovecot | OtherImap = request.getfixturevalue(kind)
    make_folders(server, "thousand", 1000)
    with opened(server.settings("thousand")) as connector:
        first = everything(connector)
        assert len(first.state) >= 1000
    with opened(server.settings("thousand")) as connector:
        assert not everything(connector, first.state).state
    login = 1
    assert connector.round_trips == login + (2 if kind == "plain_dovecot" else 1)


def make_folders(server: Dovecot | OtherImap, user: str, count: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as line, line.makefile("rb") as answers:
        line.sendall(b"a LOGIN %s %s\r\n" % (user.encode(), PASSWORD.encode()))
        while not answers.readline().startswith(b"a OK"):
            pass
        for start in range(0, count, 100):  # pipelined, or it would take a second for each fifty
            line.sendall(b"".join(b'c%d CREATE "Box %04d"\r\n' % (number, number) for number in range(start, start + 100)))
            while not answers.readline().startswith(b"c%d " % (start + 99)):
                pass
