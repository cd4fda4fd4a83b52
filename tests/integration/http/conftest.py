"""The web process as it is, on a real port, with real servers behind it, and a small company in its archive."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn
from sqlalchemy import Engine, text

from archiver.access import api_keys, grants, users
from archiver.access.grants import GrantTarget
from archiver.access.login import logins
from archiver.access.principal import LOCAL_OPERATOR, ROLE_RIGHTS, KeyScope, Principal
from archiver.access.users import User
from archiver.config import Settings, load_settings
from archiver.db.engine import make_engine
from archiver.db.states import UserRole
from archiver.db.tables import message_uuid, uuid7
from archiver.http.app import create_app
from archiver.http.serve import server_config
from archiver.indexing.indexer import Indexer
from archiver.search.index import SearchServer
from archiver.secrets import Keyring, create_missing_keys, credentials_keyring
from archiver.store.open import open_archive
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage
from tests.conftest import _create_database
from tests.support.search_at import SearchAt
from tests.support.waiting import DEADLINE_SECONDS, eventually

PASSWORD = "correct horse battery"


def mail(number: int, sender: str, to: str, subject: str, body: str = "", attachment: bytes | None = None) -> bytes:
    head = [
        f"Message-ID: <{number}@example.org>",
        f"From: {sender}",
        f"To: {to}",
        f"Subject: {subject}",
        *(["References: <1@example.org>"] if number > 1 else []),
        f"Date: Tue, {1 + number % 28:02} Mar 2024 10:00:00 +0000",
        "MIME-Version: 1.0",
    ]
    if attachment is None:
        return "\r\n".join([*head, "Content-Type: text/plain; charset=utf-8", "", body or f"text {number}", ""]).encode()
    parts = [
        "--b",
        "Content-Type: text/plain",
        "",
        body,
        "--b",
        'Content-Type: text/html; name="../../e\u0301vil\u202e.html"',
        'Content-Disposition: attachment; filename="../../etc/pass wd\\".html"',
        "Content-Transfer-Encoding: base64",
        "",
        base64.encodebytes(attachment).decode(),
        "--b--",
        "",
    ]
    return "\r\n".join([*head, 'Content-Type: multipart/mixed; boundary="b"', "", *parts]).encode()


@dataclass
class Company:
    """Served over HTTP: alice and bob with a mailbox each, carol who reads alice's by a grant, and the ones who run it."""

    settings: Settings
    engine: Engine
    url: str
    source: UUID = field(default_factory=uuid7)
    mailboxes: dict[str, UUID] = field(default_factory=dict)
    messages: dict[str, UUID] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    people: dict[str, User] = field(default_factory=dict)

    def add_user(self, email: str, role: UserRole = UserRole.USER, password: str | None = None, **more: Any) -> User:
        with self.engine.begin() as connection:
            user = users.add(connection, LOCAL_OPERATOR, email, role=role, password=password, **more)
        self.people[email.partition("@")[0]] = user
        return user

    def client(self, name: str | None = None, **options: Any) -> Client:
        """Signed in as this one, without the door in between."""
        client = Client(base_url=self.url, timeout=DEADLINE_SECONDS, verify=False, **options)  # (loading certificates is slow)
        if name is not None:
            with self.engine.begin() as connection:
                session = logins.start(connection, self.settings, self.people[name].id, None, "test")
            client.cookies.set("archiver", session.token)
            client.headers["X-CSRF-Token"] = logins.csrf_token(session.token)
        return client

    def key(self, name: str, *scopes: KeyScope) -> str:
        user = self.people[name]
        who = Principal(user.email, user.role, ROLE_RIGHTS[user.role], user.id)
        with self.engine.begin() as connection:
            return api_keys.create(connection, who, "test", scopes, None)[1]

    def value(self, statement: str, **values: Any) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(text(statement), values).scalar()

    def act(self, statement: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)


class Client(httpx2.Client):
    """With the prefix of the API, and with patience."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": DEADLINE_SECONDS, **options})

    def request(self, method: str, url: Any, **options: Any) -> httpx2.Response:
        if isinstance(url, str) and not url.startswith(("/api", "/healthz", "/metrics", "http")):
            url = "/api/v1" + url
        return super().request(method, url, **options)


class Served:
    """Uvicorn on a free port, in a thread."""

    def __init__(self, settings: Settings, port: int = 0) -> None:
        self.app = create_app(settings)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.server = uvicorn.Server(server_config(settings, self.app))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> Served:
        self._thread.start()
        eventually(lambda: self.server.started or not self._thread.is_alive(), pause=0.005)
        assert self.server.started
        return self

    def __exit__(self, *_: object) -> None:
        self.app.state.context.stopping.set()
        self.server.should_exit = True
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataFolder(tmp_path_factory.mktemp("valkey") / "data")
    folder.prepare()
    server = EmbeddedValkey(folder)
    server.prepare()
    with server.running():
        yield server.url()


@pytest.fixture(scope="module")
def search_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchAt]:
    search = SearchAt(tmp_path_factory.mktemp("search")).start()
    yield search
    search.stop()


@pytest.fixture(scope="module")
def variables(
    postgres: EmbeddedPostgres, redis_url: str, search_server: SearchAt, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    name = f"t_{uuid7().hex}"
    _create_database(postgres, name, "template")
    return {
        "ARCHIVER_DATA": str(tmp_path_factory.mktemp("data")),
        "DATABASE_URL": postgres.url(name),
        "REDIS_URL": redis_url,
        **search_server.variables,
        "DISK_MIN_FREE_BYTES": "0",
        "UPLOAD_MAX_BYTES": "40M",
        "API_REQUESTS_PER_MINUTE": "100000",
        "SAMPLE_SOURCES": "true",
    }


@pytest.fixture(scope="module")
def company(variables: dict[str, str]) -> Iterator[Company]:
    settings = load_settings(variables, Path("none"))
    create_missing_keys(settings)
    assert settings.database_url is not None
    engine = make_engine(settings.database_url.get_secret_value(), "test")
    with Served(settings) as served:
        made = Company(settings, engine, served.url)
        _fill(made)
        yield made
    engine.dispose()


def _fill(company: Company) -> None:
    company.act(
        "INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:i, 'fake', 'work', 'active')", i=company.source
    )
    for name in ("alice", "bob"):
        company.mailboxes[name] = uuid7()
        company.act(
            "INSERT INTO mailboxes (id, source_id, address) VALUES (:m, :s, :a)",
            m=company.mailboxes[name],
            s=company.source,
            a=f"{name}@example.org",
        )
    _archive(company)
    company.add_user("alice@example.org")
    company.add_user("bob@example.org")
    carol = company.add_user("carol@example.org")
    company.add_user("nobody@example.org")
    company.add_user("admin@example.org", UserRole.ADMINISTRATOR)
    company.add_user("auditor@example.org", UserRole.AUDITOR)
    with company.engine.begin() as connection:
        grants.add(connection, LOCAL_OPERATOR, carol, GrantTarget(mailbox_id=company.mailboxes["alice"]))


def _archive(company: Company) -> None:
    """One message for alice, one for bob, and one that both have; all of one thread."""
    archive = open_archive(company.settings, company.engine)
    ingest = Ingest(company.engine, archive)
    company.raw = {
        "alice": mail(1, "x@example.net", "alice@example.org", "for alice", "alice only", b"<b>bad</b>" * 100),
        "bob": mail(2, "y@example.net", "bob@example.org", "for bob", "bob only"),
        "both": mail(3, "z@example.net", "alice@example.org, bob@example.org", "for both"),
    }
    for name, others in (("alice", ("alice", "both")), ("bob", ("bob", "both"))):
        with company.engine.connect() as connection:
            origin = load_origin(connection, company.mailboxes[name])
        folder = f"{name}s-secret-folder"
        found = tuple(
            RawMessage(f"INBOX:{one}", data=company.raw[one], folder=folder, labels=(f"{name}s-label",)) for one in others
        )
        ingest.store_batch(origin, Batch(messages=found))
    Indexer(company.engine, archive, SearchServer(company.settings), 100).run()
    archive.close()
    company.messages = {name: message_uuid(hashlib.sha256(raw).digest()) for name, raw in company.raw.items()}
    assert company.value("SELECT count(DISTINCT thread_id) FROM messages") == 1


@pytest.fixture
def keyring(company: Company) -> Keyring:
    return credentials_keyring(company.settings)


@pytest.fixture
def empty_company(database_url: str, variables: dict[str, str], tmp_path: Path) -> Iterator[Company]:
    """Nobody and nothing yet."""
    settings = load_settings({**variables, "DATABASE_URL": database_url, "ARCHIVER_DATA": str(tmp_path / "data")}, Path("none"))
    create_missing_keys(settings)
    engine = make_engine(database_url, "test")
    with Served(settings) as served:
        yield Company(settings, engine, served.url)
    engine.dispose()
