"""The search server across versions: whatever it does with its files, the archive fills its index again by itself."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.errors import ArchiverError
from archiver.indexing.indexes import load_indexes
from archiver.indexing.reconcile import announce_if_replaced, reconcile
from archiver.indexing.reindex import ReindexRun
from archiver.queue.jobs import ReconcileIndex, ReindexJob
from archiver.search.index import SearchRefused, SearchServer, SearchUnavailable
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.indexing.test_reindex import fill
from tests.integration.store.conftest import set_up
from tests.support.search_at import KEY, SearchAt


@pytest.fixture
def at(engine: Engine, tmp_path: Path) -> Iterator[IndexWorld]:
    """With a search server of its own, which becomes another one."""
    set_up(engine)
    search = SearchAt(tmp_path / "search")
    made = IndexWorld(engine, tmp_path / "packs")
    made.prepare(search.start())
    yield made
    made.close()
    search.stop()


def replace_server(at: IndexWorld, version: str, *, empty: bool = False) -> None:
    at.search.stop()
    if empty:
        shutil.rmtree(at.search.folder)
    at.search.version = version
    at.search.start()


def announced(at: IndexWorld) -> set[str]:
    return {row.job for row in at.rows("SELECT job FROM outbox WHERE queue = 'indexing'")}


def filled_by(at: IndexWorld) -> str | None:
    with at.engine.connect() as connection:
        live = load_indexes(connection).live
    assert live is not None
    return live.engine_version


def test_a_new_version_that_keeps_its_files_gets_a_new_index_beside_the_old_one(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    assert not announce_if_replaced(at.engine, at.server)
    before = at.server.info("messages")
    replace_server(at, "1.51.2")
    assert announce_if_replaced(at.engine, at.server)
    assert ReconcileIndex.name in announced(at)
    reconcile(at.engine, at.server)
    assert ReindexJob.name in announced(at)
    assert filled_by(at) == "1.50.0", "until it is really filled by the new one"
    assert len(at.find("zebra")) == 60, "searching goes on meanwhile"
    assert ReindexRun(at.engine, at.archive, at.server, 20).run()
    assert filled_by(at) == "1.51.2"
    now = at.server.info("messages")
    assert before is not None
    assert now is not None
    assert now.created_at != before.created_at
    assert not announce_if_replaced(at.engine, at.server)
    at.assert_agrees()


def test_a_patch_release_changes_nothing(at: IndexWorld) -> None:
    fill(at, 3)
    reconcile(at.engine, at.server)
    replace_server(at, "1.50.7")
    assert not announce_if_replaced(at.engine, at.server)
    reconcile(at.engine, at.server)
    assert ReindexJob.name not in announced(at)
    assert filled_by(at) == "1.50.7"


def test_a_new_version_that_begins_with_nothing_is_filled(at: IndexWorld) -> None:
    """As in compose.yaml, where each version has a folder of its own."""
    fill(at)
    reconcile(at.engine, at.server)
    replace_server(at, "1.51.0", empty=True)
    assert announce_if_replaced(at.engine, at.server)
    found = reconcile(at.engine, at.server)
    assert found.missing == 60
    assert ReindexJob.name not in announced(at), "the same mail is not sent twice"
    at.index()
    assert filled_by(at) == "1.51.0"
    assert not announce_if_replaced(at.engine, at.server)
    at.assert_agrees()


def test_mail_that_arrives_before_the_comparison_is_not_lost_in_an_index_without_settings(at: IndexWorld) -> None:
    fill(at, 5)
    reconcile(at.engine, at.server)
    replace_server(at, "1.51.0", empty=True)
    fill(at, 12)  # seven of them are new; the server makes an index for them, without our settings
    reconcile(at.engine, at.server)
    at.index()
    at.assert_agrees()
    assert len(at.find("zebra")) == 12


class Answering(BaseHTTPRequestHandler):
    status, body = 200, b"{}"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json" if self.body.startswith(b"{") else "text/html")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(status: int, body: bytes) -> Iterator[SearchServer]:
    handler = type("Handler", (Answering,), {"status": status, "body": body})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield SearchServer(load_settings({"MEILI_HOST": address, "MEILI_MASTER_KEY": KEY}, Path("none")))
        finally:
            server.shutdown()
            thread.join()


def error(code: str, kind: str, message: str) -> bytes:
    return json.dumps({"message": message, "code": code, "type": kind, "link": "https://docs.meilisearch.com"}).encode()


ANSWERS = {
    "an older server that lacks a setting": (400, error("bad_request", "invalid_request", "Unknown field"), SearchRefused),
    "another key": (403, error("invalid_api_key", "auth", "The provided API key is invalid."), SearchUnavailable),
    "a damaged database": (500, error("internal", "internal", "decoding from the database failed"), SearchUnavailable),
    "a full disk": (422, error("no_space_left_on_device", "system", "no space left"), ArchiverError),
    "the page of a proxy": (502, b"<html>Bad gateway</html>", SearchUnavailable),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_the_server_is_named_and_loses_nothing(at: IndexWorld, name: str) -> None:
    fill(at, 2)
    reconcile(at.engine, at.server)
    before = at.rows("SELECT * FROM search_indexes")
    status, body, wanted = ANSWERS[name]
    with answering(status, body) as server:
        for ask in (announce_if_replaced, reconcile):
            with pytest.raises(wanted, match=r"the search server (can't|does not answer)"):
                ask(at.engine, server)
    assert at.rows("SELECT * FROM search_indexes") == before
    assert not announce_if_replaced(at.engine, at.server)
    at.assert_agrees()
