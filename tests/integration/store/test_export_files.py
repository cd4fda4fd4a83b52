"""Exported files hold the original bytes, and damage in one message does not stop the others."""

import hashlib
import zipfile
from pathlib import Path

import orjson

from archiver.exports.selection import Selection
from archiver.reading.lookup import raw_message
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.integration.store.filled import fill, id_of, messages_of
from tests.support.export_runs import export_file


def test_export_gives_the_original_bytes_and_a_manifest(world: World, tmp_path: Path) -> None:
    fill(world)
    done = export_file(world.engine, world.archive, tmp_path / "all.zip", "zip")
    assert done.messages == world.value("SELECT count(*) FROM messages")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        lines = [orjson.loads(line) for line in archive.read("manifest.jsonl").splitlines()][1:]
        assert len(lines) == done.messages
        for line in lines:
            assert hashlib.sha256(archive.read(line["file"])).hexdigest() == line["sha256"]
    part = export_file(world.engine, world.archive, tmp_path / "bob.zip", "zip", Selection(mailbox_id=SECOND))
    assert part.messages == 3
    assert b"".join(raw_message(world.engine, world.archive, id_of(1))) == messages_of(1)[0].data
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_an_mbox_export_can_be_undone(world: World, tmp_path: Path) -> None:
    tricky = b"Subject: x\n\nFrom the start\n>From here\n>>From there\nno newline"
    world.open().store_batch(world.origin(), Batch((RawMessage("1", tricky),)))
    export_file(world.engine, world.archive, tmp_path / "all.mbox", "mbox")
    text_ = (tmp_path / "all.mbox").read_bytes()
    assert text_.startswith(b"From MAILER-DAEMON ")
    assert b"\n>From the start\n>>From here\n>>>From there\nno newline\n\n" in text_
    assert (tmp_path / "all.mbox.manifest.jsonl").exists()


def test_damage_in_one_message_does_not_stop_the_export(world: World, tmp_path: Path) -> None:
    fill(world)
    (path,) = world.folder.iterdir()
    spot = world.rows("SELECT position FROM objects WHERE kind = 'message' ORDER BY position OFFSET 3 LIMIT 1")[0].position
    data = bytearray(path.read_bytes())
    data[spot + 90] ^= 1
    path.write_bytes(data)
    done = export_file(world.engine, world.archive, tmp_path / "all.zip", "zip")
    assert len(done.failed) == 1
    assert "damage in pack" in done.failed[0]["error"]
    assert done.messages == world.value("SELECT count(*) FROM messages") - 1
