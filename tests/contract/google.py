"""Google in the contract suite: a Workspace with pages, rules and a message that can't be read; and one with large messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

from connectors.base import Connector
from connectors.google import (
    GmailConnector,
    GmailSecrets,
    GmailSettings,
    WorkspaceConnector,
    WorkspaceSecrets,
    WorkspaceSettings,
)
from tests.contract.subject import QuietContext, Subject
from tests.support.google_server import GoogleServer
from tests.support.google_world import message_bytes

USERS = [{"address": "alice@acme.test", "messages": 445}, {"address": "Bob@acme.test", "messages": 12}]
WORLD: dict[str, Any] = {"page": 150, "gzip": True}
LARGE_USERS = [{"address": "alice@acme.test", "messages": 3}]
LARGE_WORLD: dict[str, Any] = {"size": 9 << 20, "page": 1}
POISON = f"{5:016x}"


@contextmanager
def workspace(server: GoogleServer) -> Iterator[Subject]:
    opened: list[Connector] = []
    poison = {"match": f"^get .*{POISON}", "status": 400}
    server.tell(troubles=[poison])

    def connect() -> Connector:
        settings = WorkspaceSettings.model_validate(server.settings)
        secrets = WorkspaceSecrets.model_validate({"key": server.key})
        opened.append(WorkspaceConnector(settings, secrets, QuietContext()))
        return opened[-1]

    def blocked() -> Connector:
        server.tell(troubles=[{"match": "^get ", "hang": True, "after": 230}])
        return connect()

    yield Subject(connect, blocked, partial(_contents, USERS, 2000, {4}), lambda: server.calls()["get"])
    _close(server, opened)


@contextmanager
def gmail(server: GoogleServer) -> Iterator[Subject]:
    opened: list[Connector] = []

    def connect() -> Connector:
        settings = GmailSettings.model_validate(server.gmail_settings)
        secrets = GmailSecrets.model_validate({"refresh_token": "refresh-secret-1"})
        opened.append(GmailConnector(settings, secrets, QuietContext()))
        return opened[-1]

    def blocked() -> Connector:
        server.tell(troubles=[{"match": "^get ", "hang": True, "after": 2}])
        return connect()

    yield Subject(connect, blocked, partial(_contents, LARGE_USERS, 9 << 20, set()), lambda: server.calls()["get"])
    _close(server, opened)


def _close(server: GoogleServer, opened: list[Connector]) -> None:
    for connector in opened:
        connector.close()
    server.tell(troubles=[])


def _contents(users: list[dict[str, Any]], size: int, unreadable: set[int], address: str) -> Counter[str]:
    (user,) = (one for one in users if one["address"] == address)
    numbers = set(range(user["messages"])) - unreadable
    return Counter(sha256(message_bytes(address, number, size)).hexdigest() for number in numbers)


GOOGLE_SUBJECTS: dict[str, Callable[[GoogleServer], AbstractContextManager[Subject]]] = {
    "google-workspace": workspace,
    "gmail-spooled": gmail,
}
