"""What a person types: a source is added, checked, synced and looked at, and its mail is put back into another account."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from imapclient import IMAPClient

from tests.acceptance.conftest import Archiver
from tests.support.dovecot import PASSWORD, Dovecot, message
from tests.support.waiting import eventually


def contents(server: Dovecot, user: str) -> Counter[tuple[str, str, str, str]]:
    """Folder, flags, date and bytes of everything in an account, as a client sees it."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    with IMAPClient("localhost", server.port, ssl=False) as client:
        client.login(user, PASSWORD)
        client.normalise_times = False
        for attributes, _, name in client.list_folders():
            if b"\\Noselect" in attributes:
                continue
            client.select_folder(name, readonly=True)
            for data in client.fetch("1:*", ["FLAGS", "INTERNALDATE", "BODY.PEEK[]"]).values() if client.search() else ():
                flags = sorted(flag.decode() for flag in data[b"FLAGS"] if flag != b"\\Recent")
                found[name, " ".join(flags), data[b"INTERNALDATE"].isoformat(), sha256(data[b"BODY[]"]).hexdigest()] += 1
    return found


def test_from_one_account_into_the_archive_and_into_another_account(
    archiver: Archiver, dovecot: Dovecot, tmp_path: Path
) -> None:
    dovecot.fill("here", "INBOX", [message(number) for number in range(30)], flags="FS")
    dovecot.fill("here", "Projekte/Ü & 日本", [message(number, more="p") for number in range(5)], flags="R")
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    settings = [f"--set={key}={value}" for key, value in dovecot.settings("here").items()]
    wrong = tmp_path / "wrong"
    wrong.write_text("not it")
    archiver.start()
    refused = archiver.command("source", "add", "imap", "--name", "work", *settings, f"--secret=password=@{wrong}")
    assert (refused.returncode, "rejected the login" in refused.stderr, "not it" in refused.stderr) == (1, True, False)
    added = archiver.command("source", "add", "imap", "--name", "work", *settings, f"--secret=password=@{secret}")
    assert added.returncode == 0, added.stderr
    assert archiver.command("source", "check", "work").returncode == 0
    synced = archiver.command("source", "sync", "work", "--wait", "--json")
    assert synced.returncode == 0, synced.stderr
    assert json.loads(synced.stdout)["outcome"] == "success"
    shown = archiver.command("source", "show", "work", "--json")
    assert PASSWORD not in shown.stdout
    assert {line["folder"]: line["archived"] for line in json.loads(shown.stdout)["ledger"]["here@localhost"]} == {
        "INBOX": 30,
        "Projekte/Ü & 日本": 5,
        "Sent": 0,
        "Trash": 0,
    }

    url = f"imap://there@localhost:{dovecot.port}?tls=none"
    restore = ("restore", "--mailbox", "here@localhost", "--to", url, "--password-file", str(secret), "--json")
    first = archiver.command(*restore)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout).items() >= {"appended": 35, "present": 0, "failed": [], "state": "done"}.items()
    assert contents(dovecot, "there") == contents(dovecot, "here")
    again = json.loads(archiver.command(*restore, "--dry-run").stdout)
    assert (again["appended"], again["present"], again["would_restore"]) == (0, 35, 0)

    below = url.replace("?", "/Back/Again?")

    def restore_found() -> bool:  # it has to be indexed first
        found = archiver.command("restore", 'subject:"message 7"', "--to", below, "--password-file", str(secret), "--json")
        assert found.returncode == 0, found.stderr
        return int(json.loads(found.stdout)["appended"]) > 0

    eventually(restore_found, what="the query")
    assert {name for name, *_ in contents(dovecot, "there")} > {"Back/Again/INBOX", "INBOX"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--all", "--to", "imap://me:hunter2@host"], "not accepted as arguments"),
        (["--all", "--to", "ftp://me@host"], "expected imaps://"),
        (["--all", "--to", "imaps://me@host:port"], "not a number"),
        (["--to", "imaps://me@host"], "name what to restore"),
        (["--all", "query", "--to", "imaps://me@host"], "name what to restore"),
        (["--all"], "name the backup"),
        ([], "name the backup"),
    ],
    ids=str,
)
def test_a_wrong_restore_is_refused(archiver: Archiver, arguments: list[str], said: str) -> None:
    refused = archiver.command("restore", *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert "hunter2" not in refused.stderr
