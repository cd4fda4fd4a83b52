"""Recorded conversations with real servers, played again in variants of the protocol that a client has to understand.

The recordings are in tests/fixtures/transcripts. `RECORD_TRANSCRIPTS=1 pytest tests/integration/imap/test_transcripts.py`
makes them again, where Dovecot, Cyrus and Courier can be started; a connector that asks something else needs that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from connectors.base import Batch
from connectors.imap import ImapConnector, ImapSecrets, ImapSettings
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import PASSWORD
from tests.support.transcript import Conversation, Transcript, Variant, recording, replaying

FOLDER = Path(__file__).parents[2] / "fixtures/transcripts"
SERVERS = {"dovecot": "dovecot", "plain-dovecot": "plain_dovecot", "cyrus": "cyrus_server", "courier": "courier_server"}
IS_RECORDING = bool(os.environ.get("RECORD_TRANSCRIPTS"))


def _mail(number: int, body: bytes) -> bytes:
    head = f"From: a@example.org\r\nTo: b@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe_{number}?=\r\n"
    return head.encode() + f"Date: Mon, 02 Jan 2023 03:04:{number:02} +0000\r\nMessage-ID: <{number}@t>\r\n\r\n".encode() + body


MAIL = {
    "INBOX": [_mail(number, f"Number {number}\r\n".encode() * (number + 1)) for number in range(6)],
    "Projekte/Übersicht": [
        _mail(10, b"* 7 EXISTS\r\na1 OK this is no response\r\n"),
        _mail(11, "Grüße in Latin-1, {12}\r\n".encode("latin-1")),
        _mail(12, b") FETCH (UID 99 BODY[] {3}\r\nabc)\r\n"),
    ],
    "日本語 フォルダ": [_mail(20, "日本語\r\n".encode() * 40), _mail(21, b"\r\n\r\n")],
    "Empty": [],
}


def _connect(port: int) -> ImapConnector:
    values = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "transcript", "connections": 1, "compress": "never"}
    return ImapConnector(
        ImapSettings.model_validate(values), ImapSecrets.model_validate({"password": PASSWORD}), QuietContext()
    )


def _two_syncs(port: int) -> tuple[Taken, list[Batch]]:
    connector = _connect(port)
    try:
        box = next(iter(connector.mailboxes()))
        first = Taken().store(connector.fetch(box, {}, nothing))
        return first, list(connector.fetch(box, first.state, first.known))
    finally:
        connector.close()


@pytest.mark.skipif(not IS_RECORDING, reason="recordings are made on request")
@pytest.mark.parametrize("name", SERVERS)
def test_record(name: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(SERVERS[name])
    for folder, messages in MAIL.items():
        server.fill("transcript", folder, messages)
    talks: list[Conversation] = []
    with recording(server.port, talks) as port:
        _two_syncs(port)
    expected = {folder: sorted(sha256(message).hexdigest() for message in messages) for folder, messages in MAIL.items()}
    Transcript(name, expected, talks).write(FOLDER / f"{name}.json")


def _whole(data: bytes) -> Iterator[bytes]:
    yield data


def _in_pieces(size: int) -> Variant:
    def cut(data: bytes) -> Iterator[bytes]:
        yield from (data[start : start + size] for start in range(0, len(data), size))

    return cut


def _outside_literals(change: Callable[[bytes], bytes]) -> Variant:
    """Changes the lines of responses, and never a message."""

    def apply(data: bytes) -> Iterator[bytes]:
        changed, rest = b"", data
        while found := re.search(rb"\{(\d+)\}\r\n", rest):
            end = found.end() + int(found[1])
            changed += change(rest[: found.end()]) + rest[found.end() : end]
            rest = rest[end:]
        yield changed + change(rest)

    return apply


_KEYWORDS = re.compile(rb"\b(FETCH|EXISTS|LIST|STATUS|SEARCH|ESEARCH|MESSAGES|UIDNEXT|UIDVALIDITY|FLAGS)\b")
"""Without those of the login (OK, CAPABILITY): Python's imaplib wants them in capitals."""


def _lower(data: bytes) -> bytes:
    return _KEYWORDS.sub(lambda found: found[0].lower(), data)


def _chatter(data: bytes) -> bytes:
    """Whatever the command was, servers may report flags, alerts and new mail in between (RFC 3501, section 7)."""
    news = b"* OK [ALERT] maintenance tonight\r\n* FLAGS (\\Seen \\Answered custom)\r\n* OK Still here\r\n"
    return re.sub(rb"(?m)^(?=\* (?:LIST|STATUS|SEARCH|ESEARCH|\d+ FETCH))", lambda _: news, data, count=1)


VARIANTS: dict[str, Variant] = {
    "as recorded": _whole,
    "in pieces of 7 bytes": _in_pieces(7),
    "in pieces of 1,000 bytes": _in_pieces(1000),
    "keywords in lower case": _outside_literals(_lower),
    "other responses in between": _outside_literals(_chatter),
}


@pytest.mark.skipif(IS_RECORDING, reason="recordings are being made")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", SERVERS)
def test_replay(name: str, variant: str) -> None:
    transcript = Transcript.read(FOLDER / f"{name}.json")
    unexpected: list[str] = []
    with replaying(transcript, VARIANTS[variant], unexpected) as port:
        first, again = _two_syncs(port)
    assert unexpected == [], "the connector asks something else than it did: record again"
    assert sorted(first.hashes.values()) == sorted(hashed for hashes in transcript.expected.values() for hashed in hashes)
    assert first.failed == set()
    expected = {folder: len(hashes) for folder, hashes in transcript.expected.items()}
    counted = {_own(folder): len(keys) for folder, keys in first.listed.items()}
    assert {folder: counted.get(folder, 0) for folder in expected} == expected
    assert not any(batch.messages for batch in again)


def _own(folder: str) -> str:
    """Courier has all folders below the inbox."""
    return folder.removeprefix("INBOX/")


def test_recordings_hold_no_secrets() -> None:
    for path in FOLDER.glob("*.json"):
        text = path.read_text()
        assert PASSWORD not in text
        for talk in Transcript.read(path).connections:
            logins = [one.command for one in talk.exchanges if one.command.upper().startswith(("LOGIN", "AUTH"))]
            assert all(len(command.split()) <= 2 for command in logins)
