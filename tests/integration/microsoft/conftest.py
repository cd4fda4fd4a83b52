"""One small Graph for all tests of this folder: each uses a mailbox of its own, and leaves the server without trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from connectors.base import Batch, ChangeKind, MailboxRef
from connectors.kinds import KINDS
from connectors.microsoft import MicrosoftConnector
from tests.contract.microsoft import KeepingContext
from tests.contract.subject import Taken
from tests.support.graph_server.running import GraphServer, graph_server

PEOPLE = 40
OTHERS = [
    {"address": "guest@elsewhere.example", "kind": "guest"},
    {"address": "left@contoso.example", "kind": "disabled"},
    {"address": "robot@contoso.example", "kind": "unlicensed"},
    {"address": "sync_1@contoso.example", "kind": "nameless"},
    {"address": "info@contoso.example", "kind": "shared"},
    {"address": "boss@contoso.example", "groups": ["board"], "archive": True},
]
_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphServer]:
    users = [{"address": f"user{number}@contoso.example", "groups": ["staff"]} for number in range(PEOPLE)]
    plan = {"users": [*users, *OTHERS], "messages": 30, "folders": ["inbox", "sentitems", "Projects"], "most_per_page": 7}
    with graph_server(tmp_path_factory.mktemp("graph"), **plan) as running:
        yield running


@dataclass(slots=True)
class Held(Taken):
    """What an archive would hold, with what became of its copies."""

    folders: dict[str, str] = field(default_factory=dict)
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)

    def store(self, batches: Iterable[Batch]) -> Held:
        for batch in batches:
            for message in batch.messages:
                self.folders[message.provider_key] = message.folder
                self.flags[message.provider_key] = message.flags
                self.labels[message.provider_key] = message.labels
            Taken.store(self, [batch])
            for change in batch.changes:
                key = change.provider_key
                assert key in self.hashes, "only of copies that are held"
                self.folders[key] = change.folder if change.folder is not None else self.folders[key]
                self.flags[key] = change.flags if change.flags is not None else self.flags[key]
                self.labels[key] = change.labels if change.labels is not None else self.labels[key]
                if change.kind is ChangeKind.GONE:
                    self.gone.add(key)
                elif change.kind is ChangeKind.BACK:
                    self.gone.discard(key)
            for skipped in batch.skipped:
                self.reasons[skipped.provider_key] = skipped.rule
            for failed in batch.failed:
                self.reasons[failed.provider_key] = failed.reason
        return self


@dataclass(slots=True)
class Box:
    """A mailbox that one test has for itself."""

    server: GraphServer
    address: str
    held: Held = field(default_factory=Held)
    contexts: list[KeepingContext] = field(default_factory=list)
    opened: list[MicrosoftConnector] = field(default_factory=list)

    @property
    def ref(self) -> MailboxRef:
        return MailboxRef(self.address, None, f"user-{self.address}")

    def connect(self, **settings: Any) -> MicrosoftConnector:
        self.contexts.append(KeepingContext())
        self.opened.append(connect(self.server, self.contexts[-1], **settings))
        return self.opened[-1]

    def sync(self, **settings: Any) -> Held:
        self.held.store(self.connect(**settings).fetch(self.ref, self.held.state, self.held.known))
        return self.held

    def do(self, method: str, *args: Any, **more: Any) -> Any:
        return self.server.do(self.address, method, *args, **more)


def connect(server: GraphServer, context: KeepingContext | None = None, **settings: Any) -> MicrosoftConnector:
    kind = KINDS["microsoft"]
    secrets = settings.pop("secrets", server.secrets)
    values = {**server.settings, **settings}
    opened = kind.open(kind.settings.model_validate(values), kind.secrets.model_validate(secrets), context or KeepingContext())
    assert isinstance(opened, MicrosoftConnector)
    return opened


@pytest.fixture
def graph(server: GraphServer) -> Iterator[GraphServer]:
    server.control(trouble={}, entra={}, forget="counts")
    yield server
    server.control(trouble={}, entra={}, roles=["Mail.Read", "User.Read.All", "GroupMember.Read.All", "MailboxSettings.Read"])


@pytest.fixture
def new_box(graph: GraphServer) -> Iterator[Callable[[], Box]]:
    made: list[Box] = []

    def make() -> Box:
        made.append(Box(graph, f"user{next(_numbers)}@contoso.example"))
        return made[-1]

    yield make
    for box in made:
        for connector in box.opened:
            connector.close()


@pytest.fixture
def box(new_box: Callable[[], Box]) -> Box:
    return new_box()
