"""What a script relies on: exit codes, `--wait`, and that a command says why it does nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.conftest import Archiver
from tests.support import mailfiles


def test_a_sync_that_a_person_requests_ends_the_back_off(running: Archiver, tmp_path: Path) -> None:
    trouble = json.dumps({"unavailable_after": 1, "unavailable_times": 2})
    sizes = ("--set=mailboxes=1", "--set=messages_per_mailbox=300", '--set=folders=["INBOX"]')
    memory = f"--set=memory_path={tmp_path / 'memory'}"
    added = running.command("source", "add", "fake", "--name", "shaky", *sizes, memory, f"--set=trouble={trouble}")
    assert added.returncode == 0, added.stderr
    first = running.command("source", "sync", "shaky", "--wait")
    assert first.returncode == 1, first.stderr
    assert "failed once in a row" in first.stderr
    assert "or with the next `source sync`" in first.stderr
    second = running.command("source", "sync", "shaky", "--wait")
    assert second.returncode == 1, second.stderr
    assert "and would have waited until" in second.stderr
    assert "failed 2 times in a row" in second.stderr
    third = running.command("source", "sync", "shaky", "--wait", "--json")
    assert (third.returncode, json.loads(third.stdout)["outcome"]) == (0, "success"), third.stderr
    shown = json.loads(running.command("source", "show", "shaky", "--json").stdout)
    ((line,),) = shown["ledger"].values()
    assert line["archived"] == line["listed"] == 300
    assert line["listed_at"]


def test_wait_for_attachments_too(running: Archiver, tmp_path: Path) -> None:
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox([mailfiles.message(number) for number in range(3)]))
    for wait in ("--wait", "--wait=full"):
        done = running.command("import", str(path), wait, "--json")
        assert (done.returncode, json.loads(done.stdout)["outcome"]) == (0, "success"), done.stderr
    done = running.command("import", str(path), "--wait=maybe")
    assert (done.returncode, "expected --wait or --wait=full" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["search", "invoice"], 0),
        (["search", "from:("], 2),
        (["search", "before:yesterdayish"], 2),
        (["search", "invoice", "--sort", "upwards"], 2),
        (["search", "invoice", "--zone", "Mars/Olympus"], 2),
        (["show", "00000000-0000-8000-8000-000000000000"], 2),
        (["source", "show", "nobody"], 2),
        (["source", "sync", "nobody", "--wait"], 2),
        (["source", "add", "imap", "--name", "x"], 2),
        (
            [
                "source",
                "add",
                "imap",
                "--name",
                "x",
                "--set=host=127.0.0.1",
                "--set=port=1",
                "--set=user=u",
                "--secret=password",
            ],
            1,
        ),
        (["export", "-o", "x.zip"], 2),
        (["export", "from:(", "-o", "x.zip"], 2),
        (["export", "--all", "-o", "x.zip", "--format=tar"], 2),
        (["import", "nowhere.mbox"], 2),
        (["dead-letters", "show", "00000000-0000-7000-8000-000000000000"], 2),
        (["nothing"], 2),
        (["search"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes(running: Archiver, arguments: list[str], code: int) -> None:
    done = running.command(*arguments)
    assert done.returncode == code, done.stderr
    if code:
        assert done.stdout == ""
        assert done.stderr.strip()
        assert "Traceback" not in done.stderr


def test_an_import_of_rubbish_is_finished_with_gaps(running: Archiver, tmp_path: Path) -> None:
    mailfiles.put(tmp_path / "in" / "good.eml", mailfiles.message(77))
    mailfiles.put(tmp_path / "in" / "bad.mbox", b"\0" * 5000)
    done = running.command("import", str(tmp_path / "in"), "--mailbox=rubbish@example.org", "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["archived"]) == (3, 1), done.stderr
