"""The connectors that the suite is run on. A further one needs an entry here and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Connector
from connectors.fake import FakeConnector, FakeSettings
from connectors.fake.connector import open_mail
from connectors.fake.memory import Journal
from tests.contract.files import FILES
from tests.contract.google import GOOGLE_SUBJECTS, LARGE_USERS, LARGE_WORLD, USERS, WORLD
from tests.contract.imap import IMAP_SUBJECTS, other_imap
from tests.contract.jmap import jmap
from tests.contract.microsoft import microsoft
from tests.contract.subject import QuietContext, Subject
from tests.support.google_server import GoogleServer, google_server

GENERATED = {
    "mailboxes": 2,
    "messages_per_mailbox": 230,
    "folders": ["INBOX", "Sent", "Projects/Übersicht", "Trash"],
    "batch_messages": 30,
    "date_from": "2020-01-02",
    "trouble": {"poison": ["INBOX/100"], "poison_with_bytes": ["Sent/101"]},
}
SPOOLED = {"mailboxes": 1, "messages_per_mailbox": 3, "folders": ["INBOX"], "bytes_per_message": 9 << 20}
SAMPLE = {"mode": "sample", "size": "small", "batch_messages": 40}


@contextmanager
def fake(settings: dict[str, Any], folder: Path) -> Iterator[Subject]:
    journal = Journal(folder / "journal")
    opened: list[FakeConnector] = []

    def connect(**more: Any) -> Connector:
        values = {**settings, "journal_path": journal.path, **more}
        opened.append(FakeConnector(FakeSettings.model_validate(values), QuietContext()))
        return opened[-1]

    yield Subject(
        open=connect,
        open_blocked=lambda: connect(trouble={"hang": True, "hang_after": 1}),
        contents=partial(_fake_contents, FakeSettings.model_validate(settings)),
        downloads=lambda: len(journal.read()),
    )
    for connector in opened:
        connector.close()


def _fake_contents(settings: FakeSettings, address: str) -> Counter[str]:
    """Straight from what is made up, without anything that fetches."""
    poison = {*settings.trouble.poison, *settings.trouble.poison_with_bytes}
    found: Counter[str] = Counter()
    for folder in open_mail(settings).folders(address):
        for position in range(folder.count()):
            if folder.key(position) not in poison and folder.unreadable(position) is None:
                data = folder.message(position).data
                assert data is not None
                found[sha256(data).hexdigest()] += 1
    return found


SUBJECTS: dict[str, Callable[[Path], AbstractContextManager[Subject]]] = {
    "fake-generated": partial(fake, GENERATED),
    "fake-spooled": partial(fake, SPOOLED),
    "fake-sample": partial(fake, SAMPLE),
    "microsoft": partial(microsoft, "many", "microsoft"),
    "microsoft-spooled": partial(microsoft, "large", "microsoft"),
    "outlook": partial(microsoft, "many", "outlook"),
    **FILES,
}


@pytest.fixture(scope="session")
def workspace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    with google_server(tmp_path_factory.mktemp("workspace"), USERS, **WORLD) as server:
        yield server


@pytest.fixture(scope="session")
def gmail_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    with google_server(tmp_path_factory.mktemp("gmail"), LARGE_USERS, **LARGE_WORLD) as server:
        yield server


JMAP_SERVERS = {"jmap-cyrus": "cyrus_server"}
OTHER_SERVERS = {"imap-cyrus": "cyrus_server", "imap-courier": "courier_server"}


@pytest.fixture(params=[*SUBJECTS, *IMAP_SUBJECTS, *OTHER_SERVERS, *JMAP_SERVERS, *GOOGLE_SUBJECTS])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param in IMAP_SUBJECTS:
        server = "plain_dovecot" if request.param == "imap-uids" else "dovecot"
        opening = IMAP_SUBJECTS[request.param](request.getfixturevalue(server))
    elif request.param in OTHER_SERVERS:
        opening = other_imap(request.getfixturevalue(OTHER_SERVERS[request.param]))
    elif request.param in JMAP_SERVERS:
        opening = jmap(request.getfixturevalue(JMAP_SERVERS[request.param]))
    elif request.param in GOOGLE_SUBJECTS:
        server = "workspace_server" if request.param == "google-workspace" else "gmail_server"
        opening = GOOGLE_SUBJECTS[request.param](request.getfixturevalue(server))
    else:
        opening = SUBJECTS[request.param](tmp_path)
    with opening as opened:
        yield opened
