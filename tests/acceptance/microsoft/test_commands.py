"""From `source add` to a search hit, with the commands that people type."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.conftest import Archiver
from tests.support.graph_server.running import graph_server

USERS = [{"address": "alice@contoso.example"}, {"address": "guest@elsewhere.example", "kind": "guest"}]


def test_from_source_add_to_a_search_hit(archiver: Archiver, tmp_path: Path) -> None:
    with graph_server(tmp_path / "graph", users=USERS, messages=5) as graph:
        secret, wrong = tmp_path / "secret", tmp_path / "wrong"
        secret.write_text(graph.secrets["client_secret"] + "\n")
        wrong.write_text("not-the-right-one\n")
        settings = [part for key, value in graph.settings.items() for part in ("--set", f"{key}={value}")]
        add = ["source", "add", "microsoft", "--name", "Contoso", *settings, "--secret"]
        archiver.start()
        refused = archiver.command(*add, f"client_secret=@{wrong}")
        assert refused.returncode == 1
        assert "the client secret is wrong" in refused.stderr
        assert "not-the-right-one" not in refused.stderr + refused.stdout
        added = archiver.command(*add, f"client_secret=@{secret}")
        assert added.returncode == 0, added.stderr
        assert archiver.command("source", "check", "Contoso").returncode == 0
        listed = json.loads(archiver.command("source", "mailboxes", "Contoso", "--json").stdout)
        assert listed == {"mailboxes": ["alice@contoso.example"], "left_out": {"guest@elsewhere.example": "a guest"}}
        synced = archiver.command("source", "sync", "Contoso", "--wait", "--json")
        assert json.loads(synced.stdout)["outcome"] == "success", synced.stderr
        everything = json.loads(archiver.command("search", "in:Posteingang", "--json").stdout)
        assert everything["total"] == 5  # by this cycle, or by one that began by itself before it
        found = json.loads(archiver.command("search", "number 3 in:Posteingang", "--json").stdout)
        assert [hit["subject"] for hit in found["hits"]] == ["Message 3"]
        assert archiver.stop() == 0
        logs = "".join(path.read_text(errors="replace") for path in (archiver.data / "logs").rglob("*.log"))
        assert "batch_stored" in logs
        for forbidden in (graph.secrets["client_secret"], *graph.seen()["access_tokens"]):
            assert forbidden not in logs + archiver.log.read_text()
