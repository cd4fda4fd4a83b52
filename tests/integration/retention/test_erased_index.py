"""After an erasure, no file of the search server contains the text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import load_settings
from archiver.maintenance.erasure.eraser import Eraser
from archiver.maintenance.erasure.index import COMPACTED
from archiver.maintenance.retention import signer
from archiver.retention import erasures
from archiver.retention.erasures import NewErasure
from archiver.secrets import Keyring
from tests.integration.indexing.conftest import IndexWorld, at, search_server
from tests.support.waiting import eventually

__all__ = ["at", "search_server"]
SECRET = "Xylotrupes"


def mail(sender: str, text: str) -> bytes:
    head = f"From: {sender}\r\nTo: team@example.org\r\nSubject: {text}\r\nDate: Fri, 1 Mar 2024 10:00:00 +0000\r\n\r\n"
    return f"{head}About {text}, from {sender}.\r\n".encode()


def written(at: IndexWorld) -> bytes:
    """All files of the search server, in lower case."""
    found = b""
    for path in sorted(at.search.folder.rglob("*")):
        if path.is_file():
            found += path.read_bytes().lower()
    return found


def test_erased_text_leaves_the_files_of_the_search_server(at: IndexWorld) -> None:
    at.put(mail("carol@example.net", SECRET), mail("dave@example.org", "Lamps"))
    at.index()
    word = SECRET.lower().encode()
    assert word in written(at)
    erasure = erasures.request(at.engine, LOCAL_OPERATOR, NewErasure("DSR 1", "x", ["carol@example.net"]))
    sign = signer(at.engine, at.archive, Keyring({"test": b"k" * 32}))
    settings = load_settings({"ARCHIVER_DATA": str(at.folder.parent), **at.search.variables})
    made = Eraser(settings, at.engine, at.archive, sign, rest_seconds=0, keep_retired=timedelta(0))
    made.advance()
    with at.engine.begin() as connection:
        erasures.approve(connection, LOCAL_OPERATOR, erasures.load(connection, "DSR 1"), second_person=False)
    at.search.kill()
    assert made.advance() == [], "without the search server, there is no receipt"
    with at.engine.connect() as connection:
        assert "search server" in (erasures.load(connection, "DSR 1").error or "")
    at.search.start()
    assert replace(made).advance() == [erasure.id]
    with at.engine.connect() as connection:
        done = erasures.load(connection, "DSR 1")
    assert json.loads(done.receipt or "")["search_index"] == COMPACTED
    eventually(lambda: word not in written(at), what="the removal of the old files")
    at.index()
    at.assert_agrees()
    assert len(at.find("Lamps")) == 1
