"""What people see of indexing: a sync that ends when its mail can be found, the lag, and a new index."""

from __future__ import annotations

import json

from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually


def test_synced_mail_can_be_found_and_the_index_made_anew(archiver: Archiver) -> None:
    archiver.start()
    added = archiver.command(
        "source", "add", "fake", "--name", "one", "--set", "mailboxes=2", "--set", "messages_per_mailbox=40"
    )
    assert added.returncode == 0, added.stderr
    synced = archiver.command("source", "sync", "one", "--wait", "--json")
    assert synced.returncode == 0, synced.stderr
    found = json.loads(archiver.command("status", "--json").stdout)["archive"]
    archived = found["messages"]  # the schedule may have brought some of it before
    assert (archived > 0, found["not_indexed"], found["index_lag_seconds"]) == (True, 0, 0)
    made = archiver.command("reindex", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {"done": True, "messages": archived, "total": archived}

    def is_indexed() -> bool:
        figures = archiver.get("/metrics")[1]
        return (
            f'archiver_index_messages{{state="full"}} {archived}.0' in figures and "archiver_index_lag_seconds 0.0" in figures
        )

    eventually(is_indexed, what="all messages searchable")
