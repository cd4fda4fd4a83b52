"""Our own exports, imported again: equal copies with folder, flags, labels and dates, not only equal bytes."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from archiver.access.principal import LOCAL_OPERATOR
from archiver.exports import service as exports
from archiver.exports.package_files import PackageFolder
from archiver.exports.selection import PackageOptions
from connectors.base import MailboxRef, RawMessage
from tests.integration.exports.conftest import EVERYTHING, ExportWorld
from tests.integration.sync.import_world import ANN
from tests.support.export_runs import export_file, run_exports
from tests.unit.connectors.files.reader import connector, fetched, imported

BOB = "bob@example.org"
COPIES = """
    SELECT encode(m.sha256, 'hex'), c.folder, c.flags, c.labels, c.received_at FROM message_copies c
    JOIN messages m ON m.id = c.message_id JOIN mailboxes b ON b.id = c.mailbox_id WHERE b.address = :address"""
AT = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture
def full(world: ExportWorld) -> ExportWorld:
    """With a message in two folders, one without flags, and a name that no file system holds."""
    twice = b"Subject: twice\n\nin two folders\n"
    more = (
        RawMessage("t1", twice, folder="INBOX", flags=("\\Seen", "$Forwarded"), labels=("red", "Work/2024"), received_at=AT),
        RawMessage("t2", twice, folder="Archive/old", flags=(), labels=()),
        RawMessage("t3", b"Subject: odd\n\n", folder="a:b/c*?/ x ", flags=("\\Flagged",), labels=("über",)),
        RawMessage("t4", b"Subject: spam\n\n", folder="Spam"),
    )
    world.store(more)
    return world


def copies(world: ExportWorld, address: str) -> Counter[Any]:
    found = world.rows(COPIES, address=address)
    return Counter((row[0], row[1], tuple(sorted(row[2])), tuple(sorted(row[3])), row[4]) for row in found)


def package(world: ExportWorld, kind: str, folder: Path, volume_bytes: int = 1 << 20) -> list[Path]:
    with world.engine.begin() as connection:
        options = PackageOptions(kind, volume_bytes=volume_bytes)
        exports.request(connection, world.settings, LOCAL_OPERATOR, EVERYTHING, options, folder=folder)
    run_exports(world.settings, world.engine, world.work.ingest.archive)
    return PackageFolder(folder).volumes()


def bring_back(world: ExportWorld, *paths: Path, mailbox: str) -> None:
    world.begin(*paths, mailbox=mailbox)
    world.drain()
    assert world.rows("SELECT outcome FROM sync_runs ORDER BY started_at DESC LIMIT 1") == [("success",)]


@pytest.mark.parametrize("kind", ["eml", "mbox", "maildir"])
def test_a_package_there_and_back(full: ExportWorld, tmp_path: Path, kind: str) -> None:
    """In several volumes, of which only the last has the manifest."""
    before = copies(full, ANN)
    volumes = package(full, kind, tmp_path / "out")
    assert len(volumes) > 1
    for _ in range(2):  # nothing is archived twice
        bring_back(full, *volumes, mailbox="copy@example.org")
        assert copies(full, "copy@example.org") == before
    bring_back(full, tmp_path / "out", mailbox="folder@example.org")
    assert copies(full, "folder@example.org") == before


@pytest.mark.parametrize("kind", ["zip", "mbox", "maildir"])
def test_a_single_file_there_and_back(full: ExportWorld, tmp_path: Path, kind: str) -> None:
    before = copies(full, ANN)
    target = tmp_path / {"zip": "out.zip", "mbox": "out.mbox", "maildir": "out"}[kind]
    export_file(full.engine, full.work.ingest.archive, target, kind)
    bring_back(full, target, mailbox="copy@example.org")
    assert copies(full, "copy@example.org") == before


def test_mailboxes_of_an_export(full: ExportWorld, tmp_path: Path) -> None:
    """Back into their own mailboxes, or into one, where their addresses are folders."""
    full.begin(full.file("b.mbox", 8, 9, 1), mailbox=BOB)
    full.drain()
    volumes = package(full, "eml", tmp_path / "out", 1 << 30)
    ann, bob = copies(full, ANN), copies(full, BOB)
    full.act("DELETE FROM message_copies")
    bring_back(full, *volumes, mailbox="{folder}")
    assert (copies(full, ANN), copies(full, BOB)) == (ann, bob)
    bring_back(full, *volumes, mailbox="all@example.org")
    folders = {
        row[0]
        for row in full.rows(
            "SELECT c.folder FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE b.address = 'all@example.org'"
        )
    }
    assert {f"{ANN}/INBOX", f"{ANN}/Archive/old", f"{BOB}/b"} <= folders


@pytest.mark.parametrize("kind", ["mbox", "maildir"])
def test_copies_of_a_message_survive_an_interruption(
    full: ExportWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """After every batch: what follows it comes again, also the second copy of a message."""
    target = tmp_path / "out"
    export_file(full.engine, full.work.ingest.archive, target, kind)
    expected = sorted((one.provider_key, one.folder) for one in imported(target, tmp_path / "scratch").messages)
    monkeypatch.setattr("connectors.files.group.BATCH_MESSAGES", 3)
    opened = connector(target, scratch=tmp_path / "scratch")
    batches = list(opened.fetch(MailboxRef(ANN), {}, lambda keys: set()))
    assert len(batches) > 5
    for stop in range(len(batches)):
        stored = [one for batch in batches[:stop] for one in batch.messages]
        state = {name: value for batch in batches[:stop] for name, value in batch.state.items()}
        held = {one.provider_key for one in stored}
        stored += fetched(opened, state, lambda keys, held=held: held & set(keys)).messages
        assert sorted((one.provider_key, one.folder) for one in stored) == expected
    opened.close()


@pytest.mark.parametrize(
    "change",
    [
        {"copies": "x"},
        {"copies": [{"mailbox": 1}]},
        {"copies": [{"mailbox": ANN, "folder": "x", "flags": [7], "labels": [], "received_at": None}]},
        {"copies": [{"mailbox": ANN, "folder": "x", "flags": [], "labels": [], "received_at": "yesterday"}]},
        {"sha256": "00"},
        {"sha256": "zz" * 32},
    ],
)
def test_a_line_that_says_nonsense_is_as_good_as_none(full: ExportWorld, tmp_path: Path, change: dict[str, Any]) -> None:
    target = tmp_path / "out.mbox"
    export_file(full.engine, full.work.ingest.archive, target, "mbox")
    manifest = tmp_path / "out.mbox.manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    number = next(n for n, line in enumerate(lines) if line.get("subject") == "spam")
    lines[number] |= change
    manifest.write_text("\n".join(json.dumps(line) for line in lines) + "\nnot json\n")
    got = imported(target, tmp_path / "scratch")
    assert got.reasons == {}
    (spam,) = [one for one in got.messages if one.data == b"Subject: spam\n\n"]
    assert spam.folder == "out"
    assert {one.folder for one in got.messages} > {"INBOX", "Archive/old"}


def test_a_zip_file_that_only_looks_like_an_export(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as other:
        other.writestr("manifest.jsonl", "x" * 5000)
        other.writestr("manifest.sig", "")
        other.writestr("INBOX/1.eml", b"Subject: x\n\ny\n")
    got = imported(tmp_path / "x.zip", tmp_path / "scratch")
    assert [(one.folder, one.data) for one in got.messages] == [("INBOX", b"Subject: x\n\ny\n")]


def test_the_rules_of_an_import_apply_to_the_folders_of_the_manifest(full: ExportWorld, tmp_path: Path) -> None:
    target = tmp_path / "out.mbox"
    export_file(full.engine, full.work.ingest.archive, target, "mbox")
    got = imported(target, tmp_path / "scratch", folders_out=["Archive/old"], include_spam=False)
    assert {"Archive/old", "Spam"} & {one.folder for one in got.messages} == set()
    assert {one.folder for one in got.skipped} == {"Archive/old", "Spam"}
