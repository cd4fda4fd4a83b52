"""Erasure on request: what is found, what stays, and that nothing gives it back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.config import Settings
from archiver.errors import ArchiverError, Conflict, NotFound, UsageError
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.erasure.check import receipt_faults
from archiver.maintenance.erasure.eraser import Eraser
from archiver.maintenance.erasure.register import REGISTER, replay
from archiver.maintenance.recovery.adopt import adopt
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.retention import signer
from archiver.maintenance.snapshot import save_config
from archiver.retention import erasures, holds
from archiver.retention.erasures import Erasure, NewErasure
from archiver.retention.holds import NewHold
from archiver.retention.person_search import search_person
from archiver.secrets import Keyring
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.integration.store.test_deletion import MakeWorld
from tests.support.waiting import eventually

KEYRING = Keyring({"test": b"k" * 32})
SECOND_PERSON = replace(LOCAL_OPERATOR, name="second@example.org")
CAROL = "carol@example.net"


def mail(number: int, text: str, sender: str = "someone@example.org", subject: str = "Lamps") -> RawMessage:
    head = f"From: {sender}\r\nTo: team@example.org\r\nSubject: {subject}\r\nMessage-ID: <{number}@e>\r\n"
    date = "Date: Fri, 1 Mar 2024 10:00:00 +0000\r\n\r\n"
    return RawMessage(f"k{number}", f"{head}{date}{text} ({number})\r\n".encode(), folder="INBOX")


MAILS = (
    mail(1, "From Carol herself.", sender=f"Carol Doe <{CAROL}>"),
    mail(2, f"Please write to {CAROL} about it."),
    mail(3, "I met Carol Doe yesterday."),
    mail(4, "Nothing about anybody."),
    mail(5, "Caroline Doering is another person."),
)


@dataclass
class Index:
    """An index that contains nothing yet: everything has to be read."""

    hits: dict[str, list[UUID]] = field(default_factory=dict)

    def message_ids(self, query: str, *_: object, **__: object) -> Iterator[UUID]:
        return iter(self.hits.get(query, []))


class Case:
    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        folder.mkdir(exist_ok=True)
        self.settings = Settings(archiver_data=folder)

    def fill(self) -> None:
        ingest = self.world.open()
        ingest.store_batch(self.world.origin(), Batch(MAILS))
        ingest.store_batch(self.world.origin(SECOND), Batch(MAILS[:1]))

    def request(self, name: str = "DSR 14", index: Index | None = None) -> Erasure:
        new = NewErasure(name, "Letter of 3 May", [CAROL], ["Carol Doe"])
        erasure = erasures.request(self.world.engine, LOCAL_OPERATOR, new)
        search_person(self.world.engine, self.world.archive, index or Index(), LOCAL_OPERATOR, erasure)  # type: ignore[arg-type]
        return self.load(name)

    def load(self, name: str = "DSR 14") -> Erasure:
        with self.world.engine.connect() as connection:
            return erasures.load(connection, name)

    def approve(self, erasure: Erasure) -> None:
        with self.world.engine.begin() as connection:
            erasures.approve(connection, SECOND_PERSON, erasure, second_person=True)

    def advance(self, **more: Any) -> list[UUID]:
        made = Eraser(
            self.settings, self.world.engine, self.world.archive, signer(self.world.engine, self.world.archive, KEYRING)
        )
        return replace(made, **{"rest_seconds": 0, "keep_retired": timedelta(0), **more}).advance()

    def found(self, erasure: Erasure) -> dict[UUID, bool]:
        with self.world.engine.connect() as connection:
            return {one.message_id: one.in_people for one in erasures.found_messages(connection, erasure)}

    def ids(self, *numbers: int) -> set[UUID]:
        rows = self.world.rows("SELECT id, internet_message_id FROM messages")
        return {row.id for row in rows if row.internet_message_id in {f"{number}@e" for number in numbers}}

    def left(self) -> set[str]:
        return {row[0] for row in self.world.rows("SELECT internet_message_id FROM messages")}

    def hashes(self, *numbers: int) -> list[bytes]:
        rows = self.world.rows("SELECT sha256 FROM messages WHERE id = ANY(:ids)", ids=list(self.ids(*numbers)))
        return [bytes(row.sha256) for row in rows]

    def packed(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.world.folder.glob("*.pack")))

    def tags(self, hashes: Iterable[bytes]) -> list[bytes]:
        return [key.content_tag(sha256) for key in self.world.archive.keys for sha256 in hashes]


@pytest.fixture
def case(world: World, tmp_path: Path) -> Case:
    made = Case(world, tmp_path / "data")
    made.fill()
    return made


def test_a_person_is_found_as_sender_and_in_texts(case: Case) -> None:
    ids = case.ids(1, 2, 3)
    erasure = case.request()
    assert erasure.state == "review"
    assert case.found(erasure) == {one: one in case.ids(1) for one in ids}


def test_nothing_is_erased_before_review_and_approval_of_another_person(case: Case) -> None:
    erasure = case.request()
    case.advance()
    assert len(case.left()) == 5
    with case.world.engine.begin() as connection, pytest.raises(Conflict, match="another administrator"):
        erasures.approve(connection, LOCAL_OPERATOR, erasure, second_person=True)
    with case.world.engine.begin() as connection:
        erasures.reject(connection, LOCAL_OPERATOR, erasure)
    with pytest.raises(Conflict, match="rejected"):
        case.approve(erasure)
    case.advance()
    assert len(case.left()) == 5
    assert case.world.rows("SELECT addresses, terms FROM erasures") == [([], [])]
    assert case.world.value("SELECT count(*) FROM erasure_messages") == 0


def test_erased_mail_leaves_the_packs_with_a_signed_receipt(case: Case, new_world: MakeWorld) -> None:
    world = case.world
    gone = case.hashes(1, 2)
    erasure = case.request()
    with world.engine.begin() as connection:
        erasures.exclude(connection, LOCAL_OPERATOR, erasure, list(case.ids(3)), "mentioned in passing")
        with pytest.raises(NotFound):
            erasures.exclude(connection, LOCAL_OPERATOR, erasure, [UUID(int=7)], "x")
    case.approve(erasure)
    assert all(tag in case.packed() for tag in case.tags(gone))
    assert case.advance() == [erasure.id]
    done = case.load()
    assert (done.state, done.copies, done.messages) == ("finished", 3, 2)
    assert (done.addresses, done.terms) == ([], [])
    assert case.left() == {"3@e", "4@e", "5@e"}
    assert not any(tag in case.packed() for tag in case.tags(gone)), "the bytes are gone"
    assert CAROL not in (done.receipt or "")
    told = json.loads(done.receipt or "")
    assert (told["erased_messages"], told["listed"], told["excluded"]) == (2, 3, {"mentioned in passing": 1})
    with world.engine.connect() as connection:
        assert receipt_faults(connection, done) == []
        assert receipt_faults(connection, replace(done, receipt=(done.receipt or "").replace("Letter", "Wetter")))
    report = verify(world.engine, world.archive, full=True)
    assert report.problems == []
    assert [note for note in report.notes if "erasure DSR 14" in note and "2 messages erased on request" in note]
    save_config(world.engine, world.archive)
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert {row[0] for row in rebuilt.rows("SELECT internet_message_id FROM messages")} == {"3@e", "4@e", "5@e"}
    with rebuilt.engine.connect() as connection:
        (kept,) = erasures.list_erasures(connection)
        assert receipt_faults(connection, kept) == []
    assert verify(rebuilt.engine, rebuilt.archive, full=True).problems == []


def test_what_a_hold_keeps_stays_and_is_named(case: Case) -> None:
    holds.place(case.world.engine, LOCAL_OPERATOR, NewHold("Case Lamp", "x", mailbox_ids=[SECOND]))
    erasure = case.request()
    with case.world.engine.begin() as connection:
        kept = erasures.what_keeps(connection, case.world.engine, case.world.archive, list(case.ids(1, 2)))
    assert set(kept.values()) == {("on hold: Case Lamp",)}
    case.approve(erasure)
    case.advance()
    done = case.load()
    assert (done.copies, done.messages, done.kept) == (3, 2, {"on hold: Case Lamp": 1})
    assert case.left() == {"1@e", "4@e", "5@e"}
    assert case.world.rows("SELECT mailbox_id FROM message_copies WHERE message_id = ANY(:i)", i=list(case.ids(1))) == [
        (SECOND,)
    ]
    assert done.state == "finished"


def test_files_that_may_be_read_stay_for_a_day(case: Case) -> None:
    case.approve(case.request())
    assert case.advance(keep_retired=timedelta(days=1)) == []
    waiting = case.load()
    assert waiting.state == "purging"
    assert waiting.receipt is None
    assert "4@e" in case.left()
    assert "1@e" not in case.left()
    assert len(case.advance()) == 1


def test_a_pack_in_use_is_replaced_later(case: Case) -> None:
    case.approve(case.request())
    assert case.advance(rest_seconds=3600) == []
    assert case.load().error
    assert len(case.advance()) == 1
    assert case.load().error is None


@pytest.mark.parametrize("table", ["tombstones", "erasure_objects", "audit_log"])
def test_an_interrupted_erasure_goes_on(case: Case, table: str) -> None:
    case.approve(case.request())
    case.world.refuse(table)
    with pytest.raises(Exception, match="refused by the test"):
        case.advance()
    case.world.allow(table)
    assert len(case.advance()) == 1
    done = case.load()
    assert (done.copies, done.messages) == (4, 3)
    assert verify(case.world.engine, case.world.archive, full=True).problems == []


def test_an_older_backup_does_not_bring_it_back(case: Case, database_url: str, new_world: MakeWorld, tmp_path: Path) -> None:
    world, target = case.world, tmp_path / "backup"
    save_config(world.engine, world.archive)
    backup(world.engine, world.archive, database_url, FolderTarget(target))
    before = {path.name: path.read_bytes() for path in (target / "packs").iterdir()}
    case.approve(case.request())
    case.advance()
    assert CAROL not in (target / REGISTER).read_text()
    world.close()
    restored = new_world(empty=True)  # the packs of the backup, without those that were written since
    restored.folder.mkdir(parents=True, exist_ok=True)
    for name, data in before.items():
        (restored.folder / name).write_bytes(data)
    restored.open()
    rebuild(restored.engine, restored.archive)
    assert restored.value("SELECT count(*) FROM messages") == 5
    assert replay(restored.engine, restored.archive, LOCAL_OPERATOR, [target / REGISTER, tmp_path / "none"]) == 4
    assert replay(restored.engine, restored.archive, LOCAL_OPERATOR, [target / REGISTER]) == 0
    again = Case(restored, case.folder)
    assert again.left() == {"4@e", "5@e"}
    assert len(again.advance()) == 1, "it is finished again, with a receipt of its own"
    assert verify(restored.engine, restored.archive, full=True).problems == []
    (target / REGISTER).write_text("{}\n")
    with pytest.raises(ArchiverError, match="line 1 is damaged"):
        replay(restored.engine, restored.archive, LOCAL_OPERATOR, [target / REGISTER])


def test_the_next_backup_has_no_pack_with_it(case: Case, database_url: str, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    gone = [
        bytes(row[0]) for row in case.world.rows("SELECT sha256 FROM messages WHERE id = ANY(:i)", i=list(case.ids(1, 2, 3)))
    ]
    backup(case.world.engine, case.world.archive, database_url, FolderTarget(target))
    case.approve(case.request())
    case.advance()
    backup(case.world.engine, case.world.archive, database_url, FolderTarget(target))
    there = b"".join(path.read_bytes() for path in (target / "packs").iterdir())
    assert not any(tag in there for tag in case.tags(gone))
    assert len(list(target.glob("*.dump"))) == 1, "dumps from before the erasure name what was erased"


def test_a_pack_that_comes_back_is_a_problem(case: Case) -> None:
    old = {path.name: path.read_bytes() for path in case.world.folder.glob("*.pack")}
    gone = case.tags(case.hashes(1, 2, 3))
    case.approve(case.request())
    case.advance()
    assert verify(case.world.engine, case.world.archive).problems == []
    for name, data in old.items():
        (case.world.folder / name).write_bytes(data)
    report = verify(case.world.engine, case.world.archive)
    assert sorted(one.pack for one in report.problems) == sorted(old)
    assert all("is there again" in one.what for one in report.problems)
    compact(case.world.engine, case.world.archive, case.folder / "scratch", rest_seconds=0)
    assert not any(tag in case.packed() for tag in gone)
    assert verify(case.world.engine, case.world.archive).problems == []
    assert case.left() == {"4@e", "5@e"}


def test_erased_bytes_in_a_pack_that_was_forgotten_are_a_problem(case: Case) -> None:
    """After a rebuild, the database does not know replaced packs any more: the mail stays deleted, and `verify` says whose."""
    world = case.world
    old = {path: path.read_bytes() for path in world.folder.glob("*.pack")}
    case.approve(case.request())
    case.advance()
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM packs WHERE state = 'retired'"))
    for path, data in old.items():
        path.write_bytes(data)
    adopt(world.engine, world.archive, rest_seconds=0)
    assert case.left() == {"4@e", "5@e"}
    found = [one.what for one in verify(world.engine, world.archive).problems]
    assert len([what for what in found if "erasure DSR 14" in what and "in this pack again" in what]) == 3, found
    compact(world.engine, world.archive, case.folder / "scratch", everything=True, keep_retired=timedelta(0), rest_seconds=0)
    assert verify(world.engine, world.archive, full=True).problems == []


_KILLED = """
import sys
from datetime import timedelta
from dataclasses import replace
from pathlib import Path
from archiver.config import Settings
from archiver.db.engine import make_engine
from archiver.maintenance.erasure import eraser
from archiver.maintenance.retention import signer
from archiver.secrets import Keyring
from tests.integration.store.conftest import World
world = World(make_engine(sys.argv[1], "test"), Path(sys.argv[2]))
world.open()
eraser._MESSAGES_AT_ONCE = 1
sign = signer(world.engine, world.archive, Keyring({"test": b"k" * 32}))
made = eraser.Eraser(Settings(archiver_data=Path(sys.argv[3])), world.engine, world.archive, sign)
replace(made, rest_seconds=0, keep_retired=timedelta(0)).advance()
"""
_STAGES = {
    "between two messages": "SELECT 0 < copies AND copies < 41 FROM erasures",
    "before the receipt": "SELECT deleted_at IS NOT NULL AND finished_at IS NULL FROM erasures",
}


@pytest.mark.parametrize("stage", _STAGES)
def test_an_erasure_that_is_killed_goes_on(case: Case, stage: str) -> None:
    """Killed with SIGKILL, in the middle of the deletion, or while packs are replaced."""
    world = case.world
    more = [mail(number, "From Carol.", sender=f"Carol Doe <{CAROL}>") for number in range(10, 47)]
    world.open().store_batch(world.origin(), Batch(tuple(more)))
    gone = case.tags(case.hashes(1, 2, 3, *range(10, 47)))
    case.approve(case.request())
    url = world.engine.url.render_as_string(hide_password=False)
    world.close()
    command = [sys.executable, "-c", _KILLED, url, str(world.folder), str(case.folder)]
    child = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        eventually(lambda: bool(world.value(_STAGES[stage])) or child.poll() is not None, seconds=60, pause=0.002)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait(60)
    (case.folder / REGISTER).unlink(missing_ok=True)  # as if it was killed before it wrote it
    world.open()
    done = eventually(lambda: one if (one := case.load()).state == "finished" else case.advance() and None, seconds=60)
    assert (done.copies, done.messages) == (41, 40)
    assert case.left() == {"4@e", "5@e"}
    assert not any(tag in case.packed() for tag in gone)
    assert len((case.folder / REGISTER).read_text().splitlines()) == 1
    with world.engine.connect() as connection:
        assert receipt_faults(connection, done) == []
    assert verify(world.engine, world.archive, full=True).problems == []


@pytest.mark.parametrize(
    "new",
    [
        NewErasure("", "x", [CAROL]),
        NewErasure("x", " ", [CAROL]),
        NewErasure("x", "y"),
        NewErasure("x", "y", ["carol"]),
        NewErasure("x", "y", ['"@x']),
        NewErasure("x", "y", (), ["a"]),
        NewErasure("x", "y", (), ['Carol" OR "']),
        NewErasure("x", "y", [f"a{number}@x" for number in range(101)]),
    ],
)
def test_what_is_not_a_request(case: Case, new: NewErasure) -> None:
    with pytest.raises(UsageError):
        erasures.request(case.world.engine, LOCAL_OPERATOR, new)


def test_the_same_reference_twice(case: Case) -> None:
    case.request()
    with pytest.raises(Conflict, match="already an erasure"):
        case.request("dsr 14")
