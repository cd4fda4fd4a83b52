"""What changes on a real server, Cyrus, is what changes in the archive."""

from __future__ import annotations

import imaplib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from connectors.base import Batch, ChangeKind
from connectors.errors import AuthFailed
from connectors.jmap import JmapConnector, JmapSecrets, JmapSettings
from tests.contract.subject import QuietContext, Taken, nothing
from tests.support.dovecot import PASSWORD, message
from tests.support.other_imap import OtherImap


@pytest.fixture
def user(cyrus_server: OtherImap) -> str:
    name = f"u{uuid4().hex[:10]}"
    cyrus_server.fill(name, "INBOX", [message(number, 400, name) for number in range(5)])
    cyrus_server.fill(name, "Work", [message(number, 400, f"{name}-work") for number in range(3)])
    return name


@contextmanager
def connected(server: OtherImap, user: str, password: str = PASSWORD, **settings: Any) -> Iterator[JmapConnector]:
    found = JmapSettings.model_validate({"url": f"http://127.0.0.1:{server.http_port}", "user": user, **settings})
    connector = JmapConnector(found, JmapSecrets.model_validate({"password": password}), QuietContext())
    try:
        yield connector
    finally:
        connector.close()


@contextmanager
def imap(server: OtherImap, user: str) -> Iterator[imaplib.IMAP4]:
    with imaplib.IMAP4("127.0.0.1", server.port) as client:
        client.login(user, PASSWORD)
        yield client


def again(connector: JmapConnector, taken: Taken) -> list[Batch]:
    box = next(iter(connector.mailboxes()))
    return list(connector.fetch(box, taken.state, taken.known))


def first(connector: JmapConnector) -> Taken:
    return Taken().store(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))


def test_new_moved_flagged_and_deleted_messages(cyrus_server: OtherImap, user: str) -> None:
    with connected(cyrus_server, user) as connector:
        taken = first(connector)
        assert {folder: len(keys) for folder, keys in taken.listed.items()} == {"INBOX": 5, "Work": 3}
        with imap(cyrus_server, user) as client:
            client.select("INBOX")
            client.store("1", "+FLAGS", r"(\Flagged)")
            client.uid("MOVE", "2", "Work")
            client.store("3", "+FLAGS", r"(\Deleted)")
            client.expunge()
            client.append("INBOX", "", "", message(77, 400, user))
        batches = again(connector, taken)
        changes = {change.kind: change for batch in batches for change in batch.changes}
        moved = [change for batch in batches for change in batch.changes if change.folder == "Work"]
        assert [len(batch.messages) for batch in batches if batch.messages] == [1]
        assert any("\\Flagged" in (change.flags or ()) for batch in batches for change in batch.changes)
        assert len(moved) == 1
        assert ChangeKind.GONE in changes
        taken.store(batches)
        before = connector.client.round_trips
        assert again(connector, taken) == []
        assert connector.client.round_trips == before + 1


def test_a_renamed_folder_moves_its_copies(cyrus_server: OtherImap, user: str) -> None:
    with connected(cyrus_server, user) as connector:
        taken = first(connector)
        with imap(cyrus_server, user) as client:
            client.rename("Work", "Arbeit")
        batches = again(connector, taken)
    moved = {change.provider_key for batch in batches for change in batch.changes if change.folder == "Arbeit"}
    assert moved == taken.listed["Work"]
    assert not any(batch.messages for batch in batches)


def test_a_deleted_folder_is_listed_as_empty(cyrus_server: OtherImap, user: str) -> None:
    with connected(cyrus_server, user) as connector:
        taken = first(connector)
        with imap(cyrus_server, user) as client:
            client.delete("Work")
        batches = again(connector, taken)
    listed = {listing.folder: len(listing.provider_keys) for batch in batches for listing in batch.listings}
    assert listed == {"INBOX": 5, "Work": 0}
    assert not any(batch.messages for batch in batches)


def test_a_message_in_two_folders_is_one_message_with_both_as_labels(cyrus_server: OtherImap, user: str) -> None:
    with imap(cyrus_server, user) as client:
        client.select("INBOX")
        client.copy("1", "Work")
    with connected(cyrus_server, user) as connector:
        batches = list(connector.fetch(next(iter(connector.mailboxes())), {}, nothing))
    both = [message for batch in batches for message in batch.messages if message.labels]
    assert [(message.folder, message.labels) for message in both] == [("INBOX", ("INBOX", "Work"))]


def test_rules_leave_folders_out_and_say_so(cyrus_server: OtherImap, user: str) -> None:
    with connected(cyrus_server, user, folders_out="Work") as connector:
        taken = first(connector)
    assert (len(taken.given), len(taken.skipped)) == (5, 3)


def test_a_wrong_password_is_refused_and_never_shown(cyrus_server: OtherImap, user: str) -> None:
    with connected(cyrus_server, user, "wrong-and-secret") as connector, pytest.raises(AuthFailed) as raised:
        connector.check()
    assert "wrong-and-secret" not in str(raised.value)


def test_a_server_without_events_is_not_waited_for(cyrus_server: OtherImap, user: str) -> None:
    """Debian's Cyrus names an address for events and has none."""
    with connected(cyrus_server, user) as connector:
        connector.watch(next(iter(connector.mailboxes())), lambda: pytest.fail("there is no news"))
