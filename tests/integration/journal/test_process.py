"""The process of its own: killed at any moment, behind a real Postfix."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import smtplib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from archiver.config import load_settings
from archiver.store.open import open_archive
from tests.integration.journal.conftest import JournalWorld, journal_settings
from tests.support.ports import free_port
from tests.support.postfix import running_postfix
from tests.support.waiting import eventually


class JournalProcess:
    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.port = int(environment["JOURNAL_PORT"])
        self._environment = {**os.environ, **environment}
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "archiver", "journal"], env=self._environment, stdout=log, stderr=log
            )
        eventually(self._answers, what="the journal to listen")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError, smtplib.SMTPException), smtplib.SMTP("127.0.0.1", self.port, timeout=5):
            return True
        return False

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def running(tmp_path: Path, database_url: str) -> Iterator[JournalProcess]:
    started = JournalProcess(journal_settings(tmp_path, database_url, JOURNAL_PORT=str(free_port())), tmp_path / "out")
    yield started
    if started.process is not None and started.process.poll() is None:
        started.end(signal.SIGKILL)


@pytest.fixture
def seen(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[JournalWorld]:
    settings = load_settings(journal_settings(tmp_path, database_url), Path("none"))
    archive = open_archive(settings, engine)
    yield JournalWorld(settings, engine, archive)
    archive.close()


def test_nothing_that_was_acknowledged_is_lost_when_the_process_is_killed(running: JournalProcess, seen: JournalWorld) -> None:
    """kill -9 while ten connections are between DATA and 250, three times; then a stop by SIGTERM."""
    acknowledged, lock = set[bytes](), threading.Lock()
    ended = threading.Event()

    def send(number: int) -> None:
        turn = 0
        while not ended.is_set():
            with (
                contextlib.suppress(OSError, smtplib.SMTPException),
                smtplib.SMTP("127.0.0.1", running.port, timeout=10) as client,
            ):
                while not ended.is_set():
                    turn += 1
                    name = b"m-%d-%d" % (number, turn)
                    head = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: " + name
                    client.sendmail("a@example.org", ["journal@archive.example"], head + b"\r\n\r\n" + b"x" * 3000 + b"\r\n")
                    with lock:
                        acknowledged.add(name)
            ended.wait(0.05)

    running.start()
    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(10)]
    for thread in threads:
        thread.start()
    chance = random.Random(3)
    for _ in range(3):
        goal = len(acknowledged) + chance.randrange(20, 150)
        eventually(lambda goal=goal: len(acknowledged) >= goal, what="some mail")
        running.end(signal.SIGKILL)
        running.start()
    ended.set()
    for thread in threads:
        thread.join()
    eventually(lambda: not seen.spool.waiting(), what="the delivery of everything")
    assert running.end(signal.SIGTERM) == 0
    found = seen.rows("SELECT m.subject, b.address FROM message_copies c JOIN messages m ON m.id = c.message_id"
                      " JOIN mailboxes b ON b.id = c.mailbox_id")  # fmt: skip
    assert len(found) == len(set(found))
    assert acknowledged <= {subject.encode() for subject, _ in found}
    assert {address for _, address in found} == {"a@example.org", "b@example.org"}


def test_behind_a_real_postfix(running: JournalProcess, seen: JournalWorld) -> None:
    """While the journal is away, Postfix keeps the mail; every copy arrives as Postfix sent it."""
    with running_postfix(running.port) as postfix:
        with smtplib.SMTP("127.0.0.1", postfix.port) as client:
            client.sendmail("alice@example.org", ["bob@example.org"], b"Subject: while away\r\n\r\ntext\r\n")
        eventually(lambda: "deferred" in postfix.log, what="Postfix to put the mail off")
        running.start()
        awkward = b"Subject: dots\r\nTo: bob@example.org\r\n\r\n.\r\n..two\r\n" + b"y" * 900 + b"\r\n\xff\xfe8 bit\r\n"
        with smtplib.SMTP("127.0.0.1", postfix.port) as client:
            client.sendmail("alice@example.org", ["bob@example.org", "hidden@example.org"], awkward)
            client.sendmail("", ["bob@example.org"], b"Subject: bounce\r\nFrom: <>\r\n\r\nreport\r\n")
        postfix.flush()
        eventually(lambda: postfix.queued() == 0, what="Postfix to deliver everything")
        assert "status=bounced" not in postfix.log
        eventually(lambda: len(seen.messages()) == 3, what="the delivery")
    found = {raw.partition(b"Subject: ")[2].partition(b"\r\n")[0]: raw for raw in seen.messages()}
    assert set(found) == {b"while away", b"dots", b"bounce"}
    assert found[b"dots"].endswith(awkward.partition(b"\r\n\r\n")[2])
    assert {"alice@example.org", "bob@example.org"} <= set(seen.copies())
