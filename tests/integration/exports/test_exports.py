"""Exports as workflows: what goes in comes out, proved; and whatever goes wrong leaves nothing behind."""

from __future__ import annotations

import csv
import io
import mailbox
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from archiver.access.principal import Principal
from archiver.db.states import StepState
from archiver.errors import Conflict
from archiver.exports import collecting
from archiver.exports import service as exports
from archiver.exports.layout import safe_name
from archiver.exports.package_files import PackageFolder
from archiver.exports.selection import PackageOptions, Selection
from archiver.exports.verifying import verify_export
from archiver.exports.volume_reading import find_volumes
from archiver.workflows import service as workflows
from archiver.workflows.step_run import StepRun
from connectors.base import RawMessage
from tests.integration.exports.conftest import ExportWorld, manifest_of
from tests.integration.exports.test_stopped_exports import replaced_step
from tests.integration.sync.import_world import ANN


@pytest.mark.parametrize("kind", ["eml", "mbox", "maildir"])
@pytest.mark.parametrize("layout", ["folders", "dates"])
def test_every_message_comes_out_byte_for_byte(world: ExportWorld, kind: str, layout: str) -> None:
    if (kind, layout) in (("mbox", "dates"), ("maildir", "dates")):
        pytest.skip("the layout is for .eml files")
    export_id = world.export(options=PackageOptions(kind, layout))
    world.finish()
    assert world.state(export_id) == "done"
    (volume,) = world.volumes(export_id)
    check = verify_export([volume], world.key())
    assert (check.problems, check.messages, check.missing) == ([], len(world.hashes()), 0)
    lines = manifest_of([volume])
    assert {line["sha256"] for line in lines if line["kind"] == "message"} == world.hashes()
    with zipfile.ZipFile(volume) as zipped:
        assert not [name for name in zipped.namelist() if ".." in name.split("/") or name.startswith("/")]
    assert world.one("SELECT count(*) FROM export_messages") == 0
    assert not exports.folder_of(world.settings, export_id).parts.exists()


def test_the_manifest_knows_folders_flags_and_labels(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    head, *lines = manifest_of(world.volumes(export_id))
    assert (head["kind"], head["requested_by"], head["selection"]) == (
        "export",
        "admin@example.org",
        {"everything": True, "zone": "UTC"},
    )
    assert head["messages"] == len(world.hashes())
    one = next(line for line in lines if line["copies"][0]["folder"] == "../../etc")
    assert one["copies"][0] | {"received_at": None} == {
        "mailbox": ANN,
        "folder": "../../etc",
        "flags": ["\\Seen"],
        "labels": ["red"],
        "received_at": None,
        "gone_at": None,
    }


def test_other_programs_read_the_mbox_files(world: ExportWorld, tmp_path: Path) -> None:
    export_id = world.export(
        Selection(mailbox_id=world.one("SELECT id FROM mailboxes"), folder="INBOX"), PackageOptions("mbox")
    )
    world.finish()
    (volume,) = world.volumes(export_id)
    with zipfile.ZipFile(volume) as zipped:
        zipped.extract(f"{ANN}/INBOX.mbox", tmp_path)
    there = mailbox.mbox(tmp_path / ANN / "INBOX.mbox", create=False)
    assert len(there) >= world.one("SELECT count(*) FROM message_copies WHERE folder = 'INBOX'")
    there.close()


def test_a_table_of_what_is_there(world: ExportWorld) -> None:
    world.act("UPDATE messages SET subject = '=cmd|calc' WHERE id = (SELECT min(id::text)::uuid FROM messages)")
    export_id = world.export(options=PackageOptions("csv"))
    world.finish()
    with zipfile.ZipFile(world.volumes(export_id)[0]) as zipped:
        rows = list(csv.DictReader(io.StringIO(zipped.read("messages.csv").decode())))
    assert {row["sha256"] for row in rows} == world.hashes()
    assert "'=cmd|calc" in {row["subject"] for row in rows}, "a spreadsheet must not run it"
    assert verify_export(world.volumes(export_id), world.key()).problems == []


@pytest.mark.parametrize("kind", ["eml", "mbox"])
def test_volumes_have_the_size_that_was_asked_for(world: ExportWorld, kind: str) -> None:
    big = tuple(RawMessage(f"b{n}", b"Subject: big\n\n" + bytes([65 + n]) * 400_000, folder="Big") for n in range(8))
    world.store(big)
    export_id = world.export(options=PackageOptions(kind, volume_bytes=1 << 20))
    world.finish()
    volumes = world.volumes(export_id)
    assert len(volumes) >= 4
    assert verify_export(volumes, world.key()).problems == []
    assert verify_export(volumes[:-1] + volumes[-1:], world.key()).messages == len(world.hashes())
    assert "volumes; " in verify_export([volumes[0], volumes[-1]], world.key()).problems[0]
    with world.engine.connect() as connection:
        item = exports.load(connection, world.who, export_id)
    assert [one.name for one in item.files] == [volume.name for volume in volumes]


def test_a_selection_and_a_folder(world: ExportWorld) -> None:
    ids = tuple(row[0] for row in world.rows("SELECT id FROM messages ORDER BY id LIMIT 4"))
    chosen = world.export(Selection(message_ids=ids))
    box = world.one("SELECT id FROM mailboxes")
    folder = world.export(Selection(mailbox_id=box, folder="Work/2024: Q1"))
    nothing = world.export(Selection(mailbox_id=box, folder="no such folder"))
    world.finish()
    assert {line["id"] for line in manifest_of(world.volumes(chosen))[1:]} == {str(one) for one in ids}
    assert {line["copies"][0]["folder"] for line in manifest_of(world.volumes(folder))[1:]} == {"Work/2024: Q1"}
    assert len(manifest_of(world.volumes(nothing))) == 1
    assert verify_export(world.volumes(nothing), world.key()).problems == []


# --- what goes wrong


def test_a_message_that_can_not_be_read_is_named(world: ExportWorld) -> None:
    lost = world.one("SELECT encode(sha256, 'hex') FROM messages LIMIT 1")
    world.act("DELETE FROM objects WHERE sha256 = decode(:s, 'hex')", s=lost)
    export_id = world.export()
    world.finish()
    assert world.state(export_id) == "done"
    check = verify_export(world.volumes(export_id), world.key())
    assert (check.problems, check.missing) == ([], 1)
    missing = [line for line in manifest_of(world.volumes(export_id)) if line["kind"] == "missing"]
    assert [line["sha256"] for line in missing] == [lost]


def test_a_permission_that_is_revoked_in_the_middle(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the selection was frozen, and before the messages are collected."""
    real = collecting.collect

    def revoke(run: StepRun) -> collecting.CollectedPart:
        world.act("UPDATE users SET may_read_all = false")
        return real(run)

    replaced_step(monkeypatch, "collect", revoke)
    export_id = world.export()
    world.finish()
    lines = manifest_of(world.volumes(export_id))[1:]
    assert {line["kind"] for line in lines} == {"missing"}
    assert {line["error"] for line in lines} == {"the person who asked for this export may no longer read it"}


def test_an_owner_who_is_disabled_gets_nothing(world: ExportWorld) -> None:
    export_id = world.export()
    world.act("UPDATE users SET disabled_at = now()")
    world.finish()
    assert world.state(export_id) == "failed: freeze: the user who requested this export is disabled"
    assert world.files_left() == []


def test_limits_and_bad_requests(world: ExportWorld) -> None:
    for _ in range(5):
        world.export()
    with pytest.raises(exports.TooManyExports, match="5 of your exports are not finished yet"):
        world.export()
    with pytest.raises(Exception, match="select exactly one"):
        world.export(Selection())
    with pytest.raises(Exception, match="format 'tar': expected one of eml"):
        world.export(options=PackageOptions("tar"))
    with pytest.raises(Exception, match="too small"):
        world.export(options=PackageOptions(volume_bytes=1))
    world.finish()
    with world.engine.connect() as connection:
        item = exports.listed(connection, world.who)[0]
        states = {step.state for step in workflows.steps(connection, item.id)}
        assert states - {StepState.SKIPPED} == {StepState.DONE}  # packing has more steps than an export of this size needs


@pytest.mark.parametrize(
    ("name", "safe"),
    [("..", "_"), ("CON", "_CON"), ("a/b", "a_b"), ("x" * 200, "x" * 80), ("a\0b:c", "a_b_c"), (" .. ", "_"), ("\ud800", "_")],
)
def test_names_are_safe_on_every_system(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_another_person_s_export_is_not_there(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    stranger: Principal = replace(world.who, user_id=UUID(int=1))
    with pytest.raises(Exception, match="there is no export"):
        exports.downloadable(world.engine, world.settings, stranger, export_id)
    shutil.rmtree(world.settings.archiver_data / "exports")
    with pytest.raises(Exception, match="expired"):
        exports.downloadable(world.engine, world.settings, world.who, export_id)


def test_folders_whose_names_are_equal_in_the_package(world: ExportWorld) -> None:
    """`a:b` and `a_b` are both `a_b.mbox`, with others between them in the order of the export."""
    mails = [
        RawMessage(f"s{n}", b"Subject: %d\n\nx\n" % n, folder=folder) for n, folder in enumerate(("a:b", "aZ", "a_b", "A_B"))
    ]
    world.store(tuple(mails))
    export_id = world.export(options=PackageOptions("mbox"))
    world.finish()
    assert world.state(export_id) == "done"
    with zipfile.ZipFile(world.volumes(export_id)[0]) as zipped:
        names = zipped.namelist()
    assert len({name.lower() for name in names}) == len(names)
    assert f"{ANN}/a_b~2.mbox" in names


def test_volumes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (1, 2, 999, 1000, 1001):
        PackageFolder(tmp_path).volume(number).touch()
    named = [path.name for path in PackageFolder(tmp_path).volumes()]
    assert named == ["export-001.zip", "export-002.zip", "export-999.zip", "export-1000.zip", "export-1001.zip"]
    assert [path.name for path in find_volumes([tmp_path])] == named


def test_permission_is_checked_again_at_the_download(world: ExportWorld) -> None:
    """Mail that its owner can no longer read is not downloaded, and a refused download is not in the audit log."""
    export_id = world.export()
    world.finish()
    exports.downloadable(world.engine, world.settings, world.who, export_id)
    restricted = replace(world.who, may_read_all=False)
    with pytest.raises(Conflict, match="contains mail that you can no longer read: request a new export"):
        exports.downloadable(world.engine, world.settings, restricted, export_id)
    assert world.one("SELECT count(*) FROM audit_log WHERE action = 'export.downloaded'") == 1
