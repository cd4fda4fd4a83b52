"""Exports come back byte for byte, and one message that can't be exported does not stop the others."""

from __future__ import annotations

import hashlib
import json
import mailbox
import zipfile
from pathlib import Path

import pytest

from archiver.db.ids import message_uuid
from connectors import exported
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import World
from tests.support import mailfiles
from tests.support.awkward_mail import AWKWARD
from tests.support.export_runs import export_file
from tests.unit.connectors.files.reader import imported

FORMATS = ("zip", "mbox", "maildir")
CORPUS = Path(__file__).parents[2] / "corpus"


def store(world: World, mails: list[bytes]) -> set[str]:
    world.open().store_batch(world.origin(), Batch(tuple(RawMessage(f"{n}", data) for n, data in enumerate(mails))))
    return {hashlib.sha256(data).hexdigest() for data in mails}


def round_trip(world: World, folder: Path, kind: str) -> set[str]:
    target = folder / {"zip": "out.zip", "mbox": "out.mbox", "maildir": "out"}[kind]
    done = export_file(world.engine, world.archive, target, kind)
    assert done.failed == []
    got = imported(target, folder / "scratch")
    assert got.reasons == {}
    return {hashlib.sha256(data).hexdigest() for data in got.data}


def test_the_names_of_exported_files_are_the_ids_of_messages() -> None:
    sha256 = hashlib.sha256(b"x").digest()
    assert exported.id_of(sha256) == message_uuid(sha256)
    assert exported.named_id(f"2020/01/{exported.eml_name(message_uuid(sha256))}") == message_uuid(sha256)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_exported_comes_back(world: World, tmp_path: Path, kind: str) -> None:
    held = store(world, [*AWKWARD, *(path.read_bytes() for path in sorted(CORPUS.glob("*.eml")))])
    assert round_trip(world, tmp_path, kind) == held


def test_other_programs_split_an_exported_mbox_at_the_same_places(world: World, tmp_path: Path) -> None:
    mails = [mailfiles.message(number, b"From here\n>From there\n") for number in range(5)]
    store(world, mails)
    export_file(world.engine, world.archive, tmp_path / "out.mbox", "mbox")
    other = mailbox.mbox(tmp_path / "out.mbox", create=False)
    subjects = {one["subject"] for one in other}
    other.close()
    assert subjects == {f"Number {number}" for number in range(5)}


def test_two_exports_in_one_file_and_foreign_mail_behind_them(world: World, tmp_path: Path) -> None:
    held = store(world, list(AWKWARD))
    export_file(world.engine, world.archive, tmp_path / "out.mbox", "mbox")
    ours = (tmp_path / "out.mbox").read_bytes()
    foreign = [mailfiles.message(number, b"From Monday on\n") for number in range(3)]
    path = mailfiles.put(tmp_path / "in" / "all.mbox", ours + ours + mailfiles.mbox(foreign, "mboxo"))
    got = imported(path, tmp_path / "scratch")
    assert len(got.data) == 2 * len(held) + len(foreign)
    assert {hashlib.sha256(data).hexdigest() for data in got.data} == held | {hashlib.sha256(d).hexdigest() for d in foreign}


def test_an_exported_mbox_that_is_cut_off_is_named(world: World, tmp_path: Path) -> None:
    store(world, [mailfiles.message(1, b"text\n" * 50)])
    export_file(world.engine, world.archive, tmp_path / "out.mbox", "mbox")
    data = (tmp_path / "out.mbox").read_bytes()
    got = imported(mailfiles.put(tmp_path / "in" / "cut.mbox", data[:-100]), tmp_path / "scratch")
    assert "truncated" in got.reasons["cut.mbox"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_message_that_the_disk_refuses_is_named(world: World, tmp_path: Path, kind: str) -> None:
    """Not only damage that we notice ourselves: an error of the operating system, too."""
    world.limit_bytes = 4096
    mails = [mailfiles.message(number, bytes(range(32, 120)) * 60) for number in range(6)]
    for number, data in enumerate(mails):
        world.open().store_batch(world.origin(), Batch((RawMessage(f"{number}", data),)))
        world.archive.close()
    world.open()
    lost = mails[2]
    pack = world.value(
        "SELECT o.pack_id FROM objects o WHERE o.sha256 = :sha AND o.kind = 'message'", sha=hashlib.sha256(lost).digest()
    )
    path = next(path for path in world.folder.rglob("*") if pack.hex in path.name.replace("-", ""))
    path.unlink()
    path.mkdir()
    target = tmp_path / f"out.{kind}"
    done = export_file(world.engine, world.archive, target, kind)
    named = message_uuid(hashlib.sha256(lost).digest())
    assert str(named) in [one["id"] for one in done.failed]
    assert done.messages == len(mails) - len(done.failed) > 0
    if kind == "zip":
        with zipfile.ZipFile(target) as archive:
            manifest = archive.read("manifest.jsonl").decode()
    else:
        manifest = target.with_name(target.name + ".manifest.jsonl").read_text()
    assert str(named) in [line["id"] for line in map(json.loads, manifest.splitlines()) if "error" in line]
