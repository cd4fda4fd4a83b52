"""From `source add` to a search hit over JMAP, from a real Cyrus; and what arrives later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.conftest import Archiver
from tests.support.dovecot import PASSWORD, message
from tests.support.other_imap import OtherImap


@pytest.mark.chaos
def test_from_source_add_to_a_search_hit(archiver: Archiver, cyrus_server: OtherImap, tmp_path: Path) -> None:
    cyrus_server.fill("accept", "INBOX", [message(number, 600, "accept") for number in range(5)])
    cyrus_server.fill("accept", "Projekte/Übersicht", [message(number, 600, "projects") for number in range(2)])
    (tmp_path / "password").write_text(PASSWORD)
    archiver.start()
    settings = ["--set", f"url=http://127.0.0.1:{cyrus_server.http_port}", "--set", "user=accept"]
    added = archiver.command("source", "add", "jmap", "--name=Cyrus", *settings, f"--secret=password=@{tmp_path / 'password'}")
    assert added.returncode == 0, added.stderr
    synced = archiver.command("source", "sync", "Cyrus", "--wait", "--json")
    assert json.loads(synced.stdout)["outcome"] == "success", synced.stderr
    assert json.loads(archiver.command("search", "in:Projekte/Übersicht", "--json").stdout)["total"] == 2
    assert json.loads(archiver.command("search", "in:INBOX", "--json").stdout)["total"] == 5
    cyrus_server.fill("accept", "Neu", [message(9, 600, "new")])
    synced = archiver.command("source", "sync", "Cyrus", "--wait", "--json")
    assert json.loads(synced.stdout)["archived"] == 1, synced.stdout
    shown = json.loads(archiver.command("source", "show", "Cyrus", "--json").stdout)
    assert {line["folder"]: line["missing"] for lines in shown["ledger"].values() for line in lines}["INBOX"] == 0
    assert archiver.stop() == 0
