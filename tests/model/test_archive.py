"""Random sequences of everything that happens to an archive, beside a plain model of what it must hold.

What was acknowledged is readable, or named as damaged; what was deleted stays deleted; nothing is reported healthy that is not;
a rebuild holds at least what was there. `ARCHIVER_MODEL_SEED` repeats a run, `ARCHIVER_MODEL_SECONDS` says how
long one takes, and `ARCHIVER_MODEL_SHRINK` (set to anything) looks for the shortest sequence that fails, which takes minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis.core
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from archiver.db.tables import message_uuid
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.dump import load_dump
from archiver.maintenance.backups.restore import Backup, restore_packs
from archiver.maintenance.backups.target import FolderTarget
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.compact import compact
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.store.frames import FrameKind
from archiver.store.keys import PackKeys
from archiver.store.pack import PACK_HEADER_BYTES, FrameHeader, walk
from archiver.supervisor.postgres import EmbeddedPostgres
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import MAILBOX, SECOND, set_up
from tests.model.checks import check, is_readable, start
from tests.model.expected import Expected, content, hash_of
from tests.model.subject import Clock, Databases, Subject

NUMBERS = st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True)
MAILBOXES = st.sampled_from([MAILBOX, SECOND])
STEPS = st.integers(0, 14)
_server: EmbeddedPostgres | None = None


class ArchiveMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        assert _server is not None
        self.folder = Path(tempfile.mkdtemp(prefix="archiver-model-"))
        self.databases = Databases(_server)
        self.subject = Subject(self.databases, self.folder / "data")
        self.expected = Expected()
        self.used_keys: set[tuple[UUID, str]] = set()
        self.clock = Clock()
        self.dump: str | None = None
        self.backup: Expected | None = None
        self.backup_keyring = self.subject.keyring

    @initialize()
    def begin(self) -> None:
        self.clock.install()
        set_up(self.subject.engine)

    def teardown(self) -> None:
        try:
            self.verify()
            self.rebuild_database()
            self.verify()
        finally:
            self.clock.remove()
            self.subject.stop()
            self.databases.drop_all()
            shutil.rmtree(self.folder, ignore_errors=True)

    # mail arrives

    @rule(mailbox=MAILBOXES, numbers=NUMBERS)
    def store(self, mailbox: UUID, numbers: list[int]) -> None:
        self._store(mailbox, [(f"k{number}", number) for number in numbers])

    @rule(mailbox=MAILBOXES, numbers=NUMBERS, name=st.sampled_from(["Renamed", "Archive"]))
    def store_again_under_other_keys(self, mailbox: UUID, numbers: list[int], name: str) -> None:
        """A folder was renamed, or its UIDVALIDITY changed: the same mail with new keys."""
        self._store(mailbox, [(f"{name}{number}", number) for number in numbers])

    @rule(mailbox=MAILBOXES, number=st.integers(0, 11))
    def store_other_bytes_under_a_known_key(self, mailbox: UUID, number: int) -> None:
        self._store(mailbox, [(f"k{number}", number + 100)])

    @rule(mailbox=MAILBOXES, numbers=NUMBERS, last_step=STEPS)
    def store_and_be_killed(self, mailbox: UUID, numbers: list[int], last_step: int) -> None:
        with self.subject.mortal(last_step):
            self._store(mailbox, [(f"k{number}", number) for number in numbers])
        self._restarted()
        for number in numbers:
            place = (mailbox, hash_of(number))
            if place not in self.expected.live and place not in self.expected.deleted:
                self.expected.attempted.add(place)
            self.used_keys.add((mailbox, f"k{number}"))

    def _store(self, mailbox: UUID, mails: list[tuple[str, int]]) -> None:
        subject = self.subject
        messages = tuple(RawMessage(key, content(number), folder="INBOX") for key, number in mails)
        subject.process.ingest.store_batch(subject.origin(mailbox), Batch(messages))
        for key, number in mails:
            folder = "INBOX" if (mailbox, key) not in self.used_keys else ""
            self.used_keys.add((mailbox, key))
            self.expected.store(mailbox, key, hash_of(number), folder)

    @precondition(lambda self: self.expected.folders)
    @rule(data=st.data(), folder=st.sampled_from(["Old", "New", "INBOX"]))
    def move(self, data: st.DataObject, folder: str) -> None:
        mailbox, key = data.draw(st.sampled_from(sorted(self.expected.folders)))
        subject = self.subject
        changes = (CopyChange(ChangeKind.MOVED, key, folder=folder),)
        subject.process.ingest.store_batch(subject.origin(mailbox), Batch(changes=changes))
        if self.expected.folders[mailbox, key]:
            self.expected.folders[mailbox, key] = folder

    # mail goes

    @precondition(lambda self: self.expected.live)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        sha256 = data.draw(
            st.sampled_from(sorted({sha256 for _, sha256 in self.expected.live} - self.expected.at_risk) or [b""])
        )
        if sha256:
            self._delete(sha256)

    @precondition(lambda self: self.expected.live)
    @rule(data=st.data(), last_step=STEPS)
    def delete_and_be_killed(self, data: st.DataObject, last_step: int) -> None:
        sha256 = data.draw(
            st.sampled_from(sorted({sha256 for _, sha256 in self.expected.live} - self.expected.at_risk) or [b""])
        )
        if not sha256:
            return
        with self.subject.mortal(last_step) as died:
            self._delete(sha256)
        present = {place for place, (found, _) in self._restarted().items() if found == sha256}
        if died and not present:
            self._forget(sha256)

    def _delete(self, sha256: bytes) -> None:
        subject = self.subject
        delete_message(subject.engine, subject.archive, message_uuid(sha256), "asked for")
        self._forget(sha256)

    def _forget(self, sha256: bytes) -> None:
        for mailbox in (MAILBOX, SECOND):
            if (mailbox, sha256) in self.expected.live or (mailbox, sha256) in self.expected.attempted:
                self.expected.delete(mailbox, sha256)

    @rule(mailbox=MAILBOXES)
    def delete_mailbox(self, mailbox: UUID) -> None:
        present = {sha256 for (place, _), (sha256, _) in self.subject.present().items() if place == mailbox}
        delete_mailbox_mail(self.subject.engine, self.subject.archive, mailbox, "left")
        for sha256 in present:
            self.expected.delete(mailbox, sha256)

    # care

    @rule(everything=st.booleans())
    def compact(self, everything: bool) -> None:
        self._compact(everything=everything)

    @rule(last_step=st.integers(0, 40))
    def compact_and_be_killed(self, last_step: int) -> None:
        with self.subject.mortal(last_step):
            self._compact(everything=True)
        self._restarted()

    @rule()
    def rotate_key(self) -> None:
        self.subject.stop()
        self.subject.keyring = self.subject.keyring.with_new_active()

    @rule()
    def compact_with_the_new_key(self) -> None:
        self._compact(rekey=True)

    def _compact(self, *, everything: bool = False, rekey: bool = False) -> None:
        subject = self.subject
        for _ in range(2):  # the second one removes what the first one replaced
            compact(
                subject.engine,
                subject.archive,
                subject.folder / "scratch",
                everything=everything,
                rekey=rekey,
                keep_retired=timedelta(0),
                rest_seconds=0,
            )

    @rule()
    def verify(self) -> None:
        subject = self.subject
        report = verify(subject.engine, subject.archive, full=True, processes=1)
        named = {message_id for problem in report.problems for message_id in problem.messages}
        for _, sha256 in self.expected.live:
            if not self._is_readable(sha256):
                assert message_uuid(sha256) in named, "a message that can't be read is not named"
        if self.expected.journal_is_whole and not self.expected.at_risk:
            assert report.problems == [], [problem.what for problem in report.problems]

    # recovery

    @rule()
    def back_up(self) -> None:
        if self.expected.at_risk or not self.expected.journal_is_whole:
            return
        subject = self.subject
        backup(subject.engine, subject.archive, self.databases.url(subject.database), FolderTarget(self.folder / "backup"))
        self.backup = self.expected.copy()
        self.backup_keyring = subject.keyring

    @precondition(lambda self: self.backup is not None)
    @rule()
    def restore_the_backup_elsewhere(self) -> None:
        place = self.folder / "restored"
        shutil.rmtree(place, ignore_errors=True)
        restored = Subject(self.databases, place)
        restored.keyring = self.backup_keyring
        source, keys = Backup.open(FolderTarget(self.folder / "backup"), self.folder / "scratch"), PackKeys(restored.keyring)
        assert restore_packs(source, restored.archive).damage == []
        assert source.reason_to_rebuild(keys) is None
        restored.stop()
        with source.dump_file() as dump:
            load_dump(dump, self.databases.url(restored.database), keys)
        start(restored)
        assert self.backup is not None
        try:
            check(restored, self.backup)
            assert verify(restored.engine, restored.archive, full=True, processes=1).problems == []
        finally:
            restored.stop()

    @rule()
    def take_dump(self) -> None:
        self.dump = self.subject.snapshot()

    @precondition(lambda self: self.dump is not None)
    @rule()
    def roll_the_database_back(self) -> None:
        """The packs are of today, the database is of the day when the dump was taken."""
        assert self.dump is not None
        self.subject.use_database(self.databases.make(self.dump))
        self._restarted()

    @rule()
    def rebuild_database(self) -> None:
        self.subject.use_database(self.databases.make())
        subject = self.subject
        done = rebuild(subject.engine, subject.archive, processes=1)
        self._accept_losses(bool(done.damage))
        self._check()

    @rule(last_step=st.integers(0, 60))
    def rebuild_and_be_killed(self, last_step: int) -> None:
        self.subject.use_database(self.databases.make())
        with self.subject.mortal(last_step) as died:
            rebuild(self.subject.engine, self.subject.archive, processes=1)
        if died:
            self.rebuild_database()

    # trouble

    @rule(days=st.integers(-40, 40))
    def set_the_clock(self, days: int) -> None:
        self.clock.offset = timedelta(days=days)

    @precondition(lambda self: not self.expected.at_risk and self.expected.journal_is_whole and self.backup is None)
    @rule(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), pack=st.integers(0, 20))
    def flip_a_bit(self, where: float, bit: int, pack: int) -> None:
        self.subject.stop()
        paths = sorted(self.subject.packs.glob("*.pack"))
        if not paths:
            return
        path = paths[pack % len(paths)]
        data = bytearray(path.read_bytes())
        at = PACK_HEADER_BYTES + int(where * (len(data) - PACK_HEADER_BYTES))
        if at >= len(data):
            return
        self.expected.at_risk |= self._risk(path, at)
        data[at] ^= 1 << bit
        path.chmod(0o600)
        mode = 0o400 if self._is_sealed(path) else 0o600
        path.write_bytes(data)
        path.chmod(mode)

    @precondition(lambda self: not self.expected.at_risk and self.expected.journal_is_whole and self.backup is None)
    @rule(pack=st.integers(0, 20))
    def lose_a_pack(self, pack: int) -> None:
        self.subject.stop()
        paths = sorted(path for path in self.subject.packs.glob("*.pack") if not path.stat().st_mode & 0o200)
        if not paths:
            return
        path = paths[pack % len(paths)]
        self.expected.at_risk |= {b"damaged", *self._messages_in(path), *self._messages_with_parts()}
        self.expected.journal_is_whole = False
        self.subject.stop()
        path.unlink()

    def _messages_in(self, path: Path) -> set[bytes]:
        archive = self.subject.archive
        pack = archive.backend.open(UUID(path.stem))
        found = [item for item in walk(pack.read_at, pack.size, pack.name) if isinstance(item, FrameHeader)]
        frames = [item for item in found if item.header.kind == FrameKind.MESSAGE]
        return {archive.frames.open_in(pack, item.offset, item.header.frame_length).sha256 for item in frames}

    def _messages_with_parts(self) -> set[bytes]:
        return {hash_of(number) for number in range(200) if number % 4 == 0}

    def _is_sealed(self, path: Path) -> bool:
        states = self.subject.rows("SELECT state FROM packs WHERE id = :id", id=UUID(path.stem))
        return bool(states) and states[0].state == "sealed"

    def _risk(self, path: Path, at: int) -> set[bytes]:
        """The messages whose bytes depend on the frame at this place."""
        everything = {sha256 for _, sha256 in self.expected.live} | {b"damaged"}
        archive = self.subject.archive
        pack = archive.backend.open(UUID(path.stem))
        for item in walk(pack.read_at, pack.size, pack.name):
            if isinstance(item, FrameHeader) and item.offset <= at < item.end:
                if item.header.kind in (FrameKind.PART, FrameKind.DICTIONARY):
                    return everything
                if item.header.kind == FrameKind.MESSAGE:
                    return {archive.frames.open_in(pack, item.offset, item.header.frame_length).sha256, b"damaged"}
        return {b"damaged"}

    # what must hold

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self) -> None:
        self._check()

    def _check(self) -> None:
        check(self.subject, self.expected)

    def _is_readable(self, sha256: bytes) -> bool:
        return is_readable(self.subject, sha256)

    def _restarted(self) -> dict[tuple[UUID, str], tuple[bytes, str]]:
        start(self.subject)
        return self.subject.present()

    def _accept_losses(self, is_named: bool) -> None:
        """After a rebuild over damage: what was damaged may be missing, if that was said."""
        present = {(place[0], sha256) for place, (sha256, _) in self.subject.present().items()}
        for place in list(self.expected.live):
            if place not in present and place[1] in self.expected.at_risk:
                assert is_named, "a rebuild lost damaged mail without a word"
                del self.expected.live[place]


def _run(server: EmbeddedPostgres, seconds: float, steps: int) -> None:
    global _server
    _server, rounds = server, 0
    seed = int(os.environ.get("ARCHIVER_MODEL_SEED", random.randrange(1 << 32)))
    deadline = time.monotonic() + float(os.environ.get("ARCHIVER_MODEL_SECONDS", seconds))
    before: Any = hypothesis.core.global_force_seed
    try:
        while rounds == 0 or time.monotonic() < deadline:
            print(f"\nmodel test: ARCHIVER_MODEL_SEED={seed + rounds}", flush=True)
            vars(hypothesis.core)["global_force_seed"] = seed + rounds
            run_state_machine_as_test(ArchiveMachine, settings=_settings(steps))
            rounds += 1
    finally:
        vars(hypothesis.core)["global_force_seed"] = before


def _settings(steps: int) -> settings:
    return settings(
        max_examples=1,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if "ARCHIVER_MODEL_SHRINK" in os.environ else (Phase.generate,),
        print_blob=False,
        report_multiple_bugs=False,
    )


@pytest.mark.timeout(900)
def test_a_minute_of_everything(postgres: EmbeddedPostgres) -> None:
    _run(postgres, 60, 25)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_an_hour_of_everything(postgres: EmbeddedPostgres) -> None:
    _run(postgres, 3600, 60)
