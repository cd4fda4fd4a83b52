"""Exports as workflows: what goes in comes out, proved; and whatever goes wrong leaves nothing behind."""

from __future__ import annotations

import base64
import csv
import errno
import io
import json
import mailbox
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.access.principal import Principal
from archiver.db.states import StepState
from archiver.evidence import signing
from archiver.exports import collecting, packing
from archiver.exports import service as exports
from archiver.exports import workflow as export_workflow
from archiver.exports.layout import safe_name
from archiver.exports.selection import PackageOptions, Selection
from archiver.exports.verifying import ExportCheck, verify_export
from archiver.store.capacity import explain_full_disk
from archiver.sync.ingest.store_batch import load_origin
from archiver.workflows import service as workflows
from archiver.workflows.definition import Workflow
from archiver.workflows.step_run import StepRun
from connectors.base import Batch, RawMessage
from tests.integration.sync.import_world import ANN, ImportWorld
from tests.support.awkward_mail import AWKWARD
from tests.support.export_runs import run_exports
from workers import workflows as registered

EVERYTHING = Selection(everything=True)
RECIPE = Path(__file__).parents[3] / "docs" / "exports.md"


class ExportWorld(ImportWorld):
    def fill(self) -> None:
        """Three messages in a file's folder, and awkward ones with flags and labels in folders that are hard to write."""
        self.begin(self.file("a.mbox", 1, 2, 3))
        self.drain()
        self.act("UPDATE users SET may_read_all = true")
        self.who = replace(self.admin, may_read_all=True)
        folders = ("INBOX", "Work/2024: Q1", "../../etc")
        mails = tuple(
            RawMessage(f"k{number}", data, folder=folders[number % 3], flags=("\\Seen",), labels=("red",))
            for number, data in enumerate(AWKWARD)
        )
        self.store(mails)

    def store(self, mails: tuple[RawMessage, ...]) -> None:
        with self.engine.connect() as connection:
            origin = load_origin(connection, self.one("SELECT id FROM mailboxes"))
        self.work.ingest.store_batch(origin, Batch(mails))

    def export(self, selection: Selection = EVERYTHING, options: PackageOptions = PackageOptions()) -> UUID:  # noqa: B008
        with self.engine.begin() as connection:
            return exports.request(connection, self.settings, self.who, selection, options)

    def finish(self) -> None:
        run_exports(self.settings, self.engine, self.work.ingest.archive)

    def state(self, export_id: UUID) -> str:
        return str(self.one("SELECT state || coalesce(': ' || error, '') FROM exports WHERE id = :i", i=export_id))

    def volumes(self, export_id: UUID) -> list[Path]:
        return exports.folder_of(self.settings, export_id).volumes()

    def key(self) -> bytes:
        with self.engine.connect() as connection:
            return signing.public_keys(connection)[0].public_bytes

    def hashes(self) -> set[str]:
        return {row[0] for row in self.rows("SELECT encode(sha256, 'hex') FROM messages")}

    def files_left(self) -> list[Path]:
        return list((self.settings.archiver_data / "exports").rglob("*"))


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ExportWorld:
    made = ExportWorld(tmp_path, engine, database_url)
    made.fill()
    return made


def manifest_of(volumes: list[Path]) -> list[dict[str, Any]]:
    with zipfile.ZipFile(volumes[-1]) as last:
        return [json.loads(line) for line in last.read("manifest.jsonl").splitlines()]


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


# --- what can be changed in an export, and is found


def rewritten(volume: Path, change: Callable[[str, bytes, zipfile.ZipInfo], tuple[str, bytes] | None]) -> Path:
    target = volume.with_name("changed.zip")
    with zipfile.ZipFile(volume) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            changed = change(info.filename, old.read(info), info)
            if changed is not None:
                info.filename = changed[0]
                new.writestr(info, changed[1])
    return target


def problems(world: ExportWorld, volume: Path) -> str:
    check: ExportCheck = verify_export([volume], world.key())
    return "; ".join(check.problems)


@pytest.mark.parametrize("kind", ["eml", "mbox"])
def test_whatever_was_changed_is_found(world: ExportWorld, kind: str) -> None:
    export_id = world.export(options=PackageOptions(kind))
    world.finish()
    (volume,) = world.volumes(export_id)
    target = next(line["file"] for line in manifest_of([volume]) if line.get("bytes", 0) > 100 and "file" in line)

    def content(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return name, data.replace(b"a", b"b", 1) if name == target else data

    def renamed(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return (name + "x" if name == target else name), data

    def removed(name: str, data: bytes, _: Any) -> tuple[str, bytes] | None:
        return None if name == target else (name, data)

    def date(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        return name, re.sub(rb'"date":"20', b'"date":"19', data, count=1) if name == "manifest.jsonl" else data

    def order(name: str, data: bytes, _: Any) -> tuple[str, bytes]:
        lines = data.splitlines()
        return name, b"\n".join([*lines[:1], *lines[:0:-1], b""]) if name == "manifest.jsonl" else data

    def signature(name: str, data: bytes, _: Any) -> tuple[str, bytes] | None:
        return None if name == "manifest.sig" else (name, data)

    assert problems(world, volume) == ""
    assert problems(world, rewritten(volume, lambda name, data, _: (name, data))) == "", "only the packing is another"
    assert "content was changed" in problems(world, rewritten(volume, content))
    assert "is not in the manifest" in problems(world, rewritten(volume, renamed))
    assert "is not in volume 1" in problems(world, rewritten(volume, removed))
    for change in (date, order):
        assert "is not what was signed" in problems(world, rewritten(volume, change))
    assert "manifest.sig is missing" in problems(world, rewritten(volume, signature))
    cut = volume.with_name("cut.zip")
    cut.write_bytes(volume.read_bytes()[:-1000])
    assert "can't be opened" in problems(world, cut)


def test_a_date_of_a_file_that_was_changed_is_found(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    (volume,) = world.volumes(export_id)

    def date(name: str, data: bytes, info: zipfile.ZipInfo) -> tuple[str, bytes]:
        if name.endswith(".eml"):
            info.date_time = (1999, 1, 1, 0, 0, 0)
        return name, data

    assert "its date was changed" in problems(world, rewritten(volume, date))


def test_an_export_that_somebody_else_signed_is_found(world: ExportWorld) -> None:
    export_id = world.export()
    world.finish()
    other = world.work.keyring
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM signing_keys"))
        signing.create_key(connection, other)
    said = verify_export(world.volumes(export_id), world.key())
    assert "signed with another key" in said.problems[0]


def test_the_recipe_in_the_documentation_finds_the_same(world: ExportWorld, tmp_path: Path) -> None:
    """In plain Python, without a line of ours."""
    (code,) = re.findall(r"```python\n(# check_export\.py.*?)```", RECIPE.read_text(), re.DOTALL)
    script = tmp_path / "check_export.py"
    script.write_text(code)
    for kind in ("eml", "mbox"):
        export_id = world.export(options=PackageOptions(kind))
        world.finish()
        (volume,) = world.volumes(export_id)
        key = base64.b64encode(world.key()).decode()

        def run(path: Path, key: str = key) -> tuple[int, str]:
            done = subprocess.run([sys.executable, "-I", str(script), key, str(path)], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        code_, said = run(volume)
        assert code_ == 0, said
        target = next(line["file"] for line in manifest_of([volume]) if line.get("bytes", 0) > 100 and "file" in line)
        changed = rewritten(volume, lambda n, d, _, t=target: (n, d.replace(b"a", b"b", 1) if n == t else d))  # type: ignore[misc]
        assert run(changed)[0] != 0


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


def replaced_step(monkeypatch: pytest.MonkeyPatch, name: str, run: Callable[[StepRun], Any]) -> None:
    """The export with another function for one step."""
    groups = tuple(
        tuple(replace(step, run=run) if step.name == name else step for step in group)
        for group in export_workflow.EXPORT.groups
    )
    changed: Workflow = replace(export_workflow.EXPORT, groups=groups)
    monkeypatch.setattr("tests.support.export_runs.WORKFLOWS", {**registered.WORKFLOWS, changed.name: changed})


STEPS = [step.name for step in export_workflow.EXPORT.steps()]


@pytest.mark.parametrize("name", STEPS)
def test_a_full_disk_in_each_step_leaves_nothing_behind(world: ExportWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The step does its work, and then the disk is full: what it wrote, and what those before it wrote, is removed."""
    real = export_workflow.EXPORT.step(name).run

    def full(run: StepRun) -> Any:
        real(run)
        with explain_full_disk():
            raise OSError(errno.ENOSPC, "No space left on device")

    replaced_step(monkeypatch, name, full)
    export_id = world.export()
    world.finish()
    assert world.state(export_id) == f"failed: {name}: the disk is full, so nothing more is written: free some space"
    assert world.files_left() == []
    assert world.one("SELECT count(*) FROM export_messages") == 0


def test_a_full_disk_while_collecting(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write itself fails, in the middle of a message."""
    real = packing.Volumes.add

    def add(self: packing.Volumes, *given: Any) -> str:
        if self.number == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *given)

    monkeypatch.setattr(packing.Volumes, "add", add)
    export_id = world.export(options=PackageOptions("mbox"))
    world.finish()
    assert world.state(export_id) == "failed: pack: the disk is full, so nothing more is written: free some space"
    assert world.files_left() == []


def test_cancelling_removes_what_was_written(world: ExportWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    real = export_workflow.EXPORT.step("verify").run

    def cancel(run: StepRun) -> Any:
        exports.remove(world.engine, world.settings, world.who, run.run_id)
        return real(run)

    replaced_step(monkeypatch, "verify", cancel)
    export_id = world.export()
    world.finish()
    assert world.state(export_id) == "failed: cancelled"
    assert world.files_left() == []
    assert world.rows("SELECT action FROM audit_log WHERE object_id = :i ORDER BY id", i=str(export_id)) == [
        ("export.requested",),
        ("export.cancelled",),
    ]


def test_a_step_that_is_repeated_gives_the_same_export(world: ExportWorld) -> None:
    """As after a crash behind each of its steps, before the result was stored."""
    export_id = world.export()
    with world.engine.connect() as connection:
        run = workflows.load(connection, export_id)
    assert run.is_open
    groups = tuple(tuple(replace(step, run=twice(step.run)) for step in group) for group in export_workflow.EXPORT.groups)
    doubled = replace(export_workflow.EXPORT, groups=groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.export_runs.WORKFLOWS", {doubled.name: doubled})
        world.finish()
    assert world.state(export_id) == "done"
    check = verify_export(world.volumes(export_id), world.key())
    assert (check.problems, check.messages) == ([], len(world.hashes()))


def twice(run: Callable[[StepRun], Any]) -> Callable[[StepRun], Any]:
    def call(step: StepRun) -> Any:
        run(StepRun(step.resources, step.claim))
        return run(step)

    return call


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
        assert {step.state for step in workflows.steps(connection, item.id)} == {StepState.DONE}


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
