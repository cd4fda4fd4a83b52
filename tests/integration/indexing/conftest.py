"""An archive with a real Postgres and a real search server, and what it takes to fill the index by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.db.ids import uuid7
from archiver.extract.extractor import Extractor
from archiver.indexing.attachments import AttachmentTexts
from archiver.indexing.indexer import Indexer
from archiver.indexing.leases import Counts
from archiver.search.index import SearchServer
from archiver.sync.ingest.store_batch import BatchResult
from connectors.base import Batch, CopyChange, RawMessage
from tests.integration.store.conftest import MAILBOX, World, set_up
from tests.support.search_at import SearchAt


class IndexWorld(World):
    """A World whose messages can be found."""

    search: SearchAt
    server: SearchServer
    extractor: Extractor

    def prepare(self, search: SearchAt) -> None:
        self.search = search
        self.settings = load_settings({"ARCHIVER_DATA": str(self.folder.parent), **search.variables}, Path("none"))
        self.server = SearchServer(self.settings)
        self.ingest = self.open()

    def put(self, *messages: bytes, mailbox: UUID = MAILBOX, folder: str = "INBOX", **more: Any) -> BatchResult:
        batch = Batch(tuple(RawMessage(str(uuid7()), data, folder=folder, **more) for data in messages))
        return self.ingest.store_batch(self.origin(mailbox), batch)

    def change(self, *changes: CopyChange, mailbox: UUID = MAILBOX) -> BatchResult:
        return self.ingest.store_batch(self.origin(mailbox), Batch(changes=changes))

    def indexer(self, batch: int = 500) -> Indexer:
        return Indexer(self.engine, self.archive, self.server, batch)

    def index(self, batch: int = 500) -> Counts:
        return self.indexer(batch).run()

    def end_leases(self) -> None:
        """As if whoever holds them had not been heard of for long."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE index_leases SET until = now() - interval '1 second'")

    def read_attachments(self) -> Counts:
        with Extractor(processes=2) as extractor:
            texts = AttachmentTexts(self.engine, self.archive, self.server, extractor, self.folder.parent / "scratch")
            return texts.run()

    def documents(self, uid: str = "messages") -> dict[str, dict[str, Any]]:
        return {found["id"]: found for page in self.server.fields(uid, ["*"]) for found in page}

    def find(self, words: str, uid: str = "messages") -> set[str]:
        import meilisearch

        client = meilisearch.Client(self.search.url, self.search.variables["MEILI_MASTER_KEY"])
        return {hit["id"] for hit in client.index(uid).search(words, {"limit": 1000})["hits"]}

    def assert_agrees(self) -> None:
        """Each message has the document that it should have, and there are no others."""
        wanted = {str(row.id): row.index_version for row in self.rows("SELECT id, index_version FROM messages")}
        assert {key: found["version"] for key, found in self.documents().items()} == wanted
        assert self.rows("SELECT id FROM messages WHERE indexed_version <> index_version OR search_state = 'pending'") == []
        threads = {str(row.id): str(row.thread_id) for row in self.rows("SELECT id, thread_id FROM messages")}
        assert {key: found["thread"] for key, found in self.documents().items()} == threads


@pytest.fixture(scope="session")
def search_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SearchAt]:
    search = SearchAt(tmp_path_factory.mktemp("search") / "data")
    yield search
    search.stop()


@pytest.fixture
def at(engine: Engine, tmp_path: Path, search_server: SearchAt) -> Iterator[IndexWorld]:
    """Without any index, whatever was there before."""
    set_up(engine)
    search_server.start()
    made = IndexWorld(engine, tmp_path / "packs")
    made.prepare(search_server)
    for uid in ("messages", "messages-next"):
        made.server.drop(uid)
    yield made
    made.close()
