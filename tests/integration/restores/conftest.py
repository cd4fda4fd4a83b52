"""An archive with mailboxes of servers, whose mail is restored, and the servers that it is restored to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from archiver.access import users
from archiver.access.principal import LOCAL_OPERATOR, Principal
from archiver.db.ids import uuid7
from archiver.exports.selection import Selection
from archiver.restores import service as restores
from archiver.restores.destination import RestoreDestination
from archiver.restores.rows import RestoreJob
from archiver.retention import holds
from archiver.retention.holds import NewHold
from archiver.sources import service as sources
from archiver.sources.null_context import QuietContext
from archiver.sync.ingest.store_batch import load_origin
from connectors.base import Batch, RawMessage
from tests.integration.sync.import_world import ImportWorld
from tests.support.export_runs import run_exports
from tests.support.google_server import GoogleServer, google_server
from tests.support.graph_server.running import GraphServer, graph_server

AT = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)


@dataclass
class RestoreWorld(ImportWorld):
    def add_source(self, kind: str, settings: dict[str, Any], secrets: dict[str, Any], name: str = "") -> UUID:
        keyring = self.work.keyring
        return sources.add(self.engine, keyring, QuietContext(), kind, name or str(uuid7()), settings, secrets).id

    def add_mailbox(self, source_id: UUID, address: str, provider_id: str | None = None) -> UUID:
        mailbox_id = uuid7()
        values = {"i": mailbox_id, "s": source_id, "a": address, "p": provider_id}
        self.act("INSERT INTO mailboxes (id, source_id, address, provider_id) VALUES (:i, :s, :a, :p)", **values)
        return mailbox_id

    def store_mail(self, mailbox_id: UUID, mails: list[bytes], folder: str = "INBOX", **more: Any) -> None:
        with self.engine.connect() as connection:
            origin = load_origin(connection, mailbox_id)
        values = {"folder": folder, "received_at": AT, "flags": ("\\Seen",), **more}
        made = [RawMessage(hashlib.sha256(data).hexdigest() + folder, data, **values) for data in mails]
        for start in range(0, len(made), 200):
            self.work.ingest.store_batch(origin, Batch(tuple(made[start : start + 200])))

    def store_keyed(self, mailbox_id: UUID, message: RawMessage) -> None:
        """As a sync stores it."""
        with self.engine.connect() as connection:
            origin = load_origin(connection, mailbox_id)
        self.work.ingest.store_batch(origin, Batch((message,)))

    def hold(self, wanted: NewHold) -> None:
        holds.place(self.engine, LOCAL_OPERATOR, wanted)

    def request(
        self,
        selection: Selection,
        destination: RestoreDestination,
        principal: Principal = LOCAL_OPERATOR,
        password: str | None = None,
    ) -> UUID:
        with self.engine.begin() as connection:
            return restores.request(
                connection, self.settings, self.work.keyring, principal, selection, destination, password=password
            )

    def start(self, restore_id: UUID, principal: Principal = LOCAL_OPERATOR) -> None:
        with self.engine.begin() as connection:
            restores.start(connection, principal, restore_id)

    def work_off(self) -> None:
        run_exports(self.settings, self.engine, self.work.ingest.archive)

    def job(self, restore_id: UUID) -> RestoreJob:
        with self.engine.connect() as connection:
            return restores.load(connection, LOCAL_OPERATOR, restore_id)

    def restore(self, selection: Selection, destination: RestoreDestination, password: str | None = None) -> RestoreJob:
        """The dry run, then the restore."""
        restore_id = self.request(selection, destination, password=password)
        self.work_off()
        assert self.job(restore_id).state == "ready", self.job(restore_id).error
        self.start(restore_id)
        self.work_off()
        return self.job(restore_id)

    def refusals(self, restore_id: UUID) -> dict[UUID, str]:
        with self.engine.connect() as connection:
            found = restores.report(connection, LOCAL_OPERATOR, restore_id, "refused", limit=100)
        return {one.message_id: one.reason or "" for one in found}

    def user(self, email: str, *, may_restore: bool) -> Principal:
        with self.engine.begin() as connection:
            user = users.add(connection, LOCAL_OPERATOR, email)
            if may_restore:
                user = users.change(connection, LOCAL_OPERATOR, user, may_restore=True)
            return user.principal()

    def hashes(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT encode(sha256, 'hex') FROM messages")}


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> RestoreWorld:
    return RestoreWorld(tmp_path, engine, database_url)


@pytest.fixture(scope="session")
def only_google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    users: list[dict[str, Any]] = [{"address": "alice@acme.test"}, {"address": "empty@acme.test", "messages": 0}]
    scope = "https://www.googleapis.com/auth/"
    scopes = [f"{scope}{name}" for name in ("gmail.readonly", "gmail.modify", "admin.directory.user.readonly")]
    with google_server(tmp_path_factory.mktemp("google"), users, messages=44, scopes=scopes) as made:
        yield made


@pytest.fixture
def google(only_google: GoogleServer) -> GoogleServer:
    only_google.start_over()
    return only_google


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphServer]:
    users = [{"address": f"{name}@contoso.example"} for name in ("full", "empty", "odd", "killed", "cleared", "held")]
    plan = {"users": users, "messages": 24, "folders": ["inbox", "sentitems", "Projects"]}
    with graph_server(tmp_path_factory.mktemp("graph"), **plan) as running:
        running.control(roles=["Mail.ReadWrite", "User.Read.All", "GroupMember.Read.All", "MailboxSettings.Read"])
        yield running
