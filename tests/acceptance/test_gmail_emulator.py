"""From `source add` to a search hit, against a Gmail that nobody here has written."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path

from tests.acceptance.conftest import Archiver
from tests.support.emulate import TOKEN, emulated_gmail
from tests.support.google_server import google_server
from tests.support.google_world import message_bytes

ALICE = "alice@acme.test"


def test_from_source_add_to_a_search_hit(archiver: Archiver, tmp_path: Path) -> None:
    mail = [message_bytes(ALICE, number, 1000) for number in range(25)]
    with (
        emulated_gmail(tmp_path, mail) as gmail,
        google_server(tmp_path / "google", [{"address": ALICE}], emulate=gmail.url, emulate_token=TOKEN) as server,
    ):
        label = gmail.ask("POST", "/labels", {"name": "Harvest/2026"})["id"]
        gmail.ask("POST", "/messages/seeded3/modify", {"addLabelIds": [label], "removeLabelIds": ["INBOX"]})
        (tmp_path / "key.json").write_text(server.key)
        archiver.environment["SYNC_FREQUENCY"] = "1d"  # the test says when
        archiver.start()
        settings = [f"--set={name}={value}" for name, value in server.settings.items()]
        added = archiver.command("source", "add", "google", "--name=Acme", *settings, f"--secret=key=@{tmp_path / 'key.json'}")
        assert added.returncode == 0, added.stderr
        first = json.loads(archiver.command("source", "sync", "Acme", "--wait", "--json").stdout)
        assert (first["outcome"], first["archived"], first["failed"]) == ("success", 25, 0)
        found = json.loads(archiver.command("search", 'subject:"Message 7"', "--json").stdout)
        assert found["total"] == 1
        assert found["hits"][0]["sha256"] == sha256(mail[7]).hexdigest()
        labelled = json.loads(archiver.command("search", "label:Harvest/2026", "--json").stdout)
        assert [hit["sha256"] for hit in labelled["hits"]] == [sha256(mail[3]).hexdigest()]

        late = message_bytes(ALICE, 99, 1000)
        gmail.insert(late, ["INBOX"])
        gmail.ask("POST", "/messages/seeded4/modify", {"addLabelIds": [label], "removeLabelIds": []})
        gmail.ask("DELETE", "/messages/seeded5")
        server.tell(reset_calls=True)
        second = json.loads(archiver.command("source", "sync", "Acme", "--wait", "--json").stdout)
        assert (second["outcome"], second["archived"]) == ("success", 1)
        assert server.calls() - Counter(token=9) == {"users": 1, "history": 1, "get": 1}
        labelled = json.loads(archiver.command("search", "label:Harvest/2026", "--json").stdout)
        assert {hit["sha256"] for hit in labelled["hits"]} == {sha256(mail[number]).hexdigest() for number in (3, 4)}
        assert json.loads(archiver.command("search", 'subject:"Message 99"', "--json").stdout)["total"] == 1
