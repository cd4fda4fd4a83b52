"""`archiver import` on a bare machine: Google Takeout, a Thunderbird profile, rubbish; and the same twice."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import Archiver
from tests.support import mailfiles

ANN = "ann@example.org"


def run(archiver: Archiver, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = archiver.command("import", *arguments, "--wait", "--json", seconds=170)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_new_user_imports_what_there_is(archiver: Archiver, tmp_path: Path) -> None:
    takeout = mailfiles.zipped(
        {
            "Takeout/Mail/All mail.mbox": mailfiles.mbox(
                [mailfiles.message(n, more=b"X-Gmail-Labels: Inbox,Work\n") for n in range(30)]
            )
        }
    )
    mailfiles.put(tmp_path / "takeout.zip", takeout)
    local = tmp_path / "profile" / "Mail" / "Local Folders"
    mailfiles.put(local / "Inbox", mailfiles.mbox([mailfiles.message(n) for n in range(100, 120)]))
    mailfiles.put(local / "Inbox.sbd" / "Old", mailfiles.mbox([mailfiles.message(120, more=b"X-Mozilla-Status: 0008\n")]))
    rubbish = tmp_path / "rubbish"
    mailfiles.put(rubbish / "noise.mbox", os.urandom(3000))
    mailfiles.put(rubbish / "note.txt", b"hello\n")
    mailfiles.put(rubbish / "good.eml", mailfiles.message(200))
    mailfiles.put(rubbish / "cut.mbox.gz", mailfiles.COMPRESS["gz"](mailfiles.mbox([mailfiles.message(300)]))[:-8])

    archiver.start()
    code, told = run(archiver, "takeout.zip", "--mailbox", ANN)
    assert (code, told["outcome"], told["archived"], told["duplicates"]) == (0, "success", 30, 0)
    assert told["kinds"] == {"mboxo": 1, "zip": 1}
    assert [(one["path"], one["variant"]) for one in told["variants"]] == [("Takeout/Mail/All mail.mbox", "mboxo")]
    assert "none with `>>From `" in told["variants"][0]["reason"]
    code, told = run(archiver, "takeout.zip", "--mailbox", ANN.upper())
    assert (code, told["outcome"], told["archived"], told["duplicates"]) == (0, "success", 0, 30)

    code, told = run(archiver, "profile", "--mailbox", ANN)
    assert (code, told["archived"], told["skipped"]) == (0, 20, 1)
    assert list(told["left_out"].values()) == [1]

    for archived in (2, 0):
        code, told = run(archiver, "rubbish", "--mailbox", ANN)
        assert (code, told["outcome"], told["archived"], told["failed"]) == (3, "incomplete", archived, 2)
        assert [one["path"] for one in told["unreadable"]] == ["cut.mbox.gz", "noise.mbox"]
        assert told["not_mail"] == [{"path": "note.txt", "what": "a text that is no mail"}]
    code, told = run(archiver, "takeout.zip", "--mailbox", ANN)
    assert code == 0, "what failed in another import is no failure of this one"

    mailfiles.put(rubbish / "noise.mbox", mailfiles.mbox([mailfiles.message(400)]))
    code, told = run(archiver, "rubbish/noise.mbox", "--mailbox", ANN)
    assert (code, told["archived"]) == (0, 1)
    letters = json.loads(archiver.command("dead-letters", "list", "--json").stdout)
    assert "noise.mbox" not in json.dumps(letters), "what is in is a failure no more"
    assert "cut.mbox.gz" in json.dumps(letters)

    listed = json.loads(archiver.command("source", "show", f"import:{ANN}", "--json").stdout)
    (lines,) = listed["ledger"].values()
    assert {line["folder"]: line["archived"] for line in lines if line["archived"]} == {
        "All mail": 30,
        "Mail/Local Folders/Inbox": 20,
        "rubbish": 1,
        "cut": 1,
        "noise": 1,
    }
    assert sum(line["missing"] for line in lines) == 0


def test_two_imports_into_one_mailbox_at_the_same_time(archiver: Archiver, tmp_path: Path) -> None:
    for which in range(2):
        messages = [mailfiles.message(which * 100 + number) for number in range(20)]
        mailfiles.put(tmp_path / f"{which}.mbox", mailfiles.mbox(messages))
    archiver.start()
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda which: run(archiver, f"{which}.mbox", "--mailbox", ANN), range(2)))
    assert [(code, told["outcome"], told["archived"], told["found"]) for code, told in ended] == [(0, "success", 20, 20)] * 2
    assert len({told["run"] for _, told in ended}) == 2
    listed = json.loads(archiver.command("imports", "list", "--json").stdout)["imports"]
    assert {(one["id"], one["run"], one["state"]) for one in listed} == {
        (told["import"], told["run"], "success") for _, told in ended
    }
    done = archiver.command("imports", "discard", listed[0]["id"][:30])
    assert (done.returncode, "this import has no stored files" in done.stderr) == (2, True), done.stderr


def test_wrong_usage_is_said_before_anything_is_started(archiver: Archiver, tmp_path: Path) -> None:
    for arguments, said in (
        (("nowhere.mbox",), "nowhere.mbox: no such file or folder"),
        ((str(tmp_path), "--kind", "pst"), "--kind pst: expected one of auto, mbox"),
        ((str(tmp_path), "--set", "x"), "--set x: expected KEY=VALUE"),
    ):
        done = archiver.command("import", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
    assert not archiver.data.exists()
