"""`archiver search`, `export QUERY` and `delete QUERY`, as a person types them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import meilisearch
import pytest
from sqlalchemy import Engine, text

from archiver.db.tables import message_uuid
from archiver.mail.message import read_message
from archiver.search.document import INDEX, INDEX_SETTINGS, IndexedCopy, Inputs, Participant, build_document
from archiver.store.content import MemoryContent
from archiver.sync.ingest.rows import describe
from connectors.base import Batch, RawMessage
from tests.integration.search.mail_world import in_mbox, mail
from tests.integration.search.search_process import finished
from tests.integration.store.conftest import MAILBOX, SOURCE, World, set_up
from tests.support.waiting import DEADLINE_SECONDS

MAILS = [
    mail("Invoice 1", "The first total of the year", at=datetime(2024, 1, 1, tzinfo=UTC)),
    mail("Invoice 2", "The second total", sender="bob@example.org", at=datetime(2024, 2, 1, tzinfo=UTC)),
    mail("Lunch", "At noon", at=datetime(2024, 3, 1, tzinfo=UTC)),
]
MAILS.append(in_mbox(MAILS[0]))


@pytest.fixture
def archiver(
    engine: Engine, database_url: str, server_url: tuple[str, str], client: meilisearch.Client, tmp_path: Path
) -> Iterator[Archiver]:
    set_up(engine)
    world = World(engine, tmp_path / "data" / "packs")
    world.open().store_batch(world.origin(), Batch(tuple(RawMessage(f"k{place}", raw) for place, raw in enumerate(MAILS))))
    world.archive.close()
    finished(client, client.create_index(INDEX, {"primaryKey": "id"}))
    finished(client, client.index(INDEX).update_settings(INDEX_SETTINGS))
    finished(client, client.index(INDEX).add_documents([document(raw) for raw in MAILS]))
    yield Archiver(tmp_path / "data", database_url, *server_url)
    finished(client, client.index(INDEX).delete())


def document(raw: bytes) -> dict[str, Any]:
    rows = describe(MemoryContent(raw), hashlib.sha256(raw).digest(), None)
    return build_document(
        Inputs(
            id=rows.id,
            version=1,
            sha256=rows.sha256,
            sort_at=rows.message["sort_at"],
            size_bytes=len(raw),
            message=read_message(raw),
            sender=rows.message["sender"],
            subject=rows.message["subject"],
            people=[Participant(one["r"], one["a"], one["n"]) for one in rows.participants],
            copies=[IndexedCopy(MAILBOX, SOURCE, "INBOX")],
        )
    )


class Archiver:
    def __init__(self, data: Path, database: str, search: str, key: str) -> None:
        self.environment = {
            **os.environ,
            "ARCHIVER_DATA": str(data),
            "DATABASE_URL": database,
            "REDIS_URL": "redis://127.0.0.1:1",
            "MEILI_HOST": search,
            "MEILI_MASTER_KEY": key,
            "STORAGE_ENCRYPTION_KEY": "test:" + base64.b64encode(b"k" * 32).decode(),
            "ENCRYPTION_KEY": "test:" + base64.b64encode(b"k" * 32).decode(),
            "TZ": "Europe/Berlin",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "archiver"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=DEADLINE_SECONDS, text=True)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def test_a_search_and_what_can_be_done_with_it(archiver: Archiver, engine: Engine, tmp_path: Path) -> None:
    found = archiver.json("search", "total", "--facets")
    assert (found["total"], found["total_is_lower_bound"]) == (2, False)
    assert [hit["subject"] for hit in found["hits"]] == ["Invoice 2", "Invoice 1"]
    first = found["hits"][1]
    variants = {str(message_uuid(hashlib.sha256(raw).digest())) for raw in (MAILS[0], MAILS[3])}
    assert (first["from"], {first["id"], *first["variants"]}) == ("alice@corp.com", variants)
    assert [first["snippet"][start:end] for start, end in first["marks"]] == ["total"]
    assert found["not_searchable"] == {"messages": 4, "states": {"pending": 4}, "reasons": {}}
    assert found["facets"]["sender"] == [{"value": "alice@corp.com", "count": 2}, {"value": "bob@example.org", "count": 1}]
    for page, more in ((2, 3), (3, None)):  # one variant is on another page, and shown there
        found = archiver.json("search", "total", "--limit", "1", "--page", str(page))
        assert ([hit["subject"] for hit in found["hits"]], found["next_page"]) == (["Invoice 1"], more)
    assert f"also archived as {first['variants'][0]}" in archiver.run("search", "first").stdout
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE messages SET thread_id = :id WHERE id = ANY(:ids)"), {"id": first["id"], "ids": [*variants]}
        )
    assert archiver.json("show", first["id"])["variants"] == first["variants"]
    assert f"variant      {first['variants'][0]}" in archiver.run("show", first["id"]).stdout

    shown = archiver.run("search", "from:bob")
    assert shown.returncode == 0
    assert "Invoice 2" in shown.stdout
    assert "2024-02-01 01:00" in shown.stdout
    assert "1 message" in shown.stderr

    exported = archiver.json("export", "subject:invoice", "-o", str(tmp_path / "out.zip"))
    assert exported["messages"] == 3
    with zipfile.ZipFile(tmp_path / "out.zip") as file:
        assert sorted(file.read(name) for name in file.namelist() if name.endswith(".eml")) == sorted([*MAILS[:2], MAILS[3]])

    deleted = archiver.json("delete", "noon", "--reason", "over", "--yes")
    assert deleted == {"copies": 1, "messages": 1, "held": 0, "holds": []}
    assert archiver.run("show", str(message_uuid(hashlib.sha256(MAILS[2]).digest()))).returncode == 2
    assert archiver.json("search", "noon")["hits"] == []  # the index is behind, the rows are not


def test_a_wrong_query_is_pointed_at(archiver: Archiver, tmp_path: Path) -> None:
    done = archiver.run("export", "fom:alice", "-o", str(tmp_path / "x.zip"))
    assert done.returncode == 2
    assert "did you mean from:" in done.stderr
    assert "^^^^" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.zip").exists()
    assert "time zone" in archiver.run("search", "x", "--zone", "Mars/Base").stderr
    assert archiver.run("search", "x", "--sort", "random").returncode == 2
