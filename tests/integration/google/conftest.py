"""One Google for all; each test gets it as new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from connectors.google import WorkspaceConnector, WorkspaceSecrets, WorkspaceSettings
from tests.contract.subject import QuietContext
from tests.support.google_server import GoogleServer, google_server

ALICE, BOB = "alice@acme.test", "bob@acme.test"
USERS: list[dict[str, Any]] = [
    {"address": ALICE, "name": "Alice A."},
    {"address": BOB, "unit": "/Sales/North"},
    {"address": "carol@acme.test", "unit": "/Salesmen", "suspended": True},
    {"address": "dan@acme.test", "archived": True},
    {"address": "erin@acme.test", "mailbox": False},
]

Open = Callable[..., WorkspaceConnector]


@pytest.fixture(scope="session")
def only_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    with google_server(tmp_path_factory.mktemp("google"), USERS, messages=30, page=10) as made:
        yield made


@pytest.fixture
def server(only_server: GoogleServer) -> GoogleServer:
    only_server.start_over()
    return only_server


@pytest.fixture
def connect(server: GoogleServer) -> Iterator[Open]:
    opened: list[WorkspaceConnector] = []

    def make(context: Any = None, **settings: Any) -> WorkspaceConnector:
        checked = WorkspaceSettings.model_validate({**server.settings, **settings})
        secrets = WorkspaceSecrets.model_validate({"key": server.key})
        opened.append(WorkspaceConnector(checked, secrets, context or QuietContext()))
        return opened[-1]

    yield make
    for connector in opened:
        connector.close()
