"""What the spool acknowledged is there, whatever failed; what failed was not acknowledged."""

from __future__ import annotations

import errno
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from archiver.errors import InUse
from archiver.journal.envelope import JournalEnvelope
from archiver.journal.spool import JournalSpool
from archiver.secrets import Keyring
from archiver.store.errors import Damage
from archiver.store.keys import PackKeys
from tests.support.store_world import Failing

ENVELOPE = JournalEnvelope(datetime(2026, 11, 2, tzinfo=UTC), "192.0.2.1", "", ("journal@archive.example",))


@pytest.fixture
def spool(tmp_path: Path) -> JournalSpool:
    (tmp_path / "journal").mkdir()
    return JournalSpool(tmp_path / "journal", PackKeys(Keyring.generate()))


def _read(spool: JournalSpool) -> list[bytes]:
    return [b"".join(pieces) for path in spool.waiting() for _, pieces in spool.read(path)]


def test_messages_come_back_with_their_envelopes_and_are_sealed_on_disk(spool: JournalSpool) -> None:
    spool.append(ENVELOPE, b"small secret")
    spool.append_stream(ENVELOPE, iter([b"large ", b"secret" * 500_000]))
    assert _read(spool) == [b"small secret", b"large " + b"secret" * 500_000]
    assert next(spool.read(spool.waiting()[0]))[0] == ENVELOPE
    assert not any(b"secret" in path.read_bytes() for path in spool.waiting())


def test_many_at_once_share_a_file_and_lose_nothing(spool: JournalSpool) -> None:
    together = threading.Barrier(20)

    def send(number: int) -> None:
        together.wait()
        for turn in range(10):
            spool.append(ENVELOPE, f"{number}-{turn}".encode())

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(_read(spool)) == sorted(f"{number}-{turn}".encode() for number in range(20) for turn in range(10))
    assert len(spool.waiting()) < 200


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_after_a_failure_of_any_step_nothing_is_acknowledged_and_nothing_is_left(spool: JournalSpool, number: int) -> None:
    numbers = set[int | None]()
    for step in range(20):
        spool.files = Failing(step, number, torn=True)
        try:
            spool.append(ENVELOPE, b"message %d" % step)
        except OSError as error:
            numbers.add(error.errno)
            assert not list(spool.folder.glob("*.*"))
            continue
        break
    else:
        pytest.fail("every step failed")
    assert step >= 5
    assert numbers == {number}
    assert _read(spool) == [b"message %d" % step]


def test_a_group_that_fails_fails_for_each_of_its_messages(spool: JournalSpool) -> None:
    class Stuck(Failing):
        """Waits until others have joined the queue, then fails."""

        def open(self, path: Path, flags: int) -> int:
            if self.count == 0:
                while len(spool._queue) < 4:
                    threading.Event().wait(0.01)
            elif self.count == 1:
                self.fail_at = 1
            return super().open(path, flags)

    spool.files, outcomes = Stuck(0, errno.ENOSPC), list[str]()

    def send() -> None:
        try:
            spool.append(ENVELOPE, b"x")
        except OSError:
            outcomes.append("refused")
        else:
            outcomes.append("stored")

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("stored") == len(_read(spool))
    assert outcomes.count("refused") == 5 - len(_read(spool))
    assert outcomes.count("refused") == 5  # the first alone, then the four that waited for it


def test_what_a_killed_process_left_unfinished_is_removed_and_the_rest_stays(spool: JournalSpool) -> None:
    spool.append(ENVELOPE, b"acknowledged")
    (spool.folder / "0199.tmp").write_bytes(b"half")
    with spool.hold():
        assert not list(spool.folder.glob("*.tmp"))
        assert _read(spool) == [b"acknowledged"]
        with pytest.raises(InUse), spool.hold():
            pass


def test_a_damaged_file_is_set_aside_not_lost(spool: JournalSpool) -> None:
    spool.append(ENVELOPE, b"x" * 100)
    (path,) = spool.waiting()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Damage):
        _read(spool)
    assert spool.set_aside(path).exists()
    assert spool.waiting() == []
    assert spool.backlog().set_aside == 1
