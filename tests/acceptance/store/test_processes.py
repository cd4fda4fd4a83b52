"""Whole processes on one archive: killed at any moment, several at once, and one with a gigabyte."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from sqlalchemy import Engine, text

from archiver.db.engine import make_engine
from archiver.db.tables import uuid7
from archiver.maintenance.checks.verify import verify
from archiver.maintenance.recovery.catch_up import catch_up
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.store.writer import message, open_world
from tests.conftest import _create_database
from tests.integration.store.conftest import MAILBOX, SECOND, set_up
from tests.support.waiting import DEADLINE_SECONDS, patient

ROOT = Path(__file__).parents[3]


def start(what: str, url: str, folder: Path, mailbox: UUID, argument: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.acceptance.store.writer", what, url, str(folder), str(mailbox), str(argument)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], lines: int, pause: float) -> bool:
    """kill -9 some time after it has said so many lines. False if it was done before."""
    assert process.stdout is not None
    for _ in range(lines):
        if not process.stdout.readline():
            break
    try:
        process.wait(timeout=pause)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def check(engine: Engine, folder: Path, numbers: range, mailboxes: int) -> None:
    _, archive = open_world(engine, folder)
    with engine.connect() as connection:
        found = {bytes(row.sha256) for row in connection.execute(text("SELECT sha256 FROM messages"))}
        copies = connection.execute(text("SELECT count(*) FROM message_copies")).scalar_one()
    assert found == {hashlib.sha256(message(number)).digest() for number in numbers}
    assert copies == len(numbers) * mailboxes
    for number in numbers:
        assert archive.read(hashlib.sha256(message(number)).digest()) == message(number)
    catch_up(engine, archive, lambda _: None)  # as a worker does
    report = verify(engine, archive, full=True)
    assert report.problems == []
    archive.close()


def kill_loop(engine: Engine, url: str, folder: Path, rounds: int, total: int) -> None:
    set_up(engine)
    chance, killed = random.Random(5), 0
    for _ in range(rounds):
        process = start("write", url, folder, MAILBOX, total)
        killed += kill_after(process, chance.randint(0, 3), chance.random() * 0.15)
    last = start("write", url, folder, MAILBOX, total)
    _, errors = last.communicate(timeout=DEADLINE_SECONDS)
    assert last.returncode == 0, errors
    assert killed >= rounds // 2
    check(engine, folder, range(total), 1)


def test_kill_9_of_the_writer_again_and_again(engine: Engine, database_url: str, tmp_path: Path) -> None:
    kill_loop(engine, database_url, tmp_path, rounds=6, total=400)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_kill_9_of_the_writer_many_times(engine: Engine, database_url: str, tmp_path: Path) -> None:
    kill_loop(engine, database_url, tmp_path, rounds=100, total=4000)


def test_two_processes_write_the_same_mail_at_once(engine: Engine, database_url: str, tmp_path: Path) -> None:
    set_up(engine)
    processes = [start("write", database_url, tmp_path / "packs", mailbox, 300) for mailbox in (MAILBOX, SECOND)]
    for process in processes:
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, errors
    check(engine, tmp_path / "packs", range(300), 2)
    assert len(list((tmp_path / "packs").glob("*.pack"))) >= 2


def test_rebuild_after_a_kill_holds_at_least_what_was_there(
    engine: Engine, database_url: str, tmp_path: Path, new_world_url: str
) -> None:
    set_up(engine)
    process = start("write", database_url, tmp_path / "packs", MAILBOX, 4000)
    assert kill_after(process, 4, 0.05)
    with engine.connect() as connection:
        before = {row.id for row in connection.execute(text("SELECT id FROM messages"))}
    empty = make_engine(new_world_url, "test")
    _, archive = open_world(empty, tmp_path / "packs")
    assert rebuild(empty, archive).damage == []
    with empty.connect() as connection:
        after = {row.id for row in connection.execute(text("SELECT id FROM messages"))}
    assert before <= after
    archive.close()
    empty.dispose()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process rebuilds")
@pytest.mark.parametrize("killed", ["one that reads", "the one that was started"])
def test_a_rebuild_that_loses_a_process_ends_as_a_whole(
    engine: Engine, database_url: str, tmp_path: Path, new_world_url: str, killed: str
) -> None:
    set_up(engine)
    start("write", database_url, tmp_path / "packs", MAILBOX, 1000).communicate(timeout=DEADLINE_SECONDS)
    process = start("rebuild", new_world_url, tmp_path / "packs", MAILBOX, 2)
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert process.poll() is None, process.communicate()
        children = psutil.Process(process.pid).children()
    for child in children:
        child.suspend()
    (children[0] if killed == "one that reads" else process).kill()
    for child in children:  # one that was suspended right after its fork has yet to ask for its end with the parent's
        with suppress(psutil.NoSuchProcess):
            child.resume()
    _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode != 0
    assert killed != "one that reads" or "run the command again with an empty database" in errors
    assert psutil.wait_procs(children, timeout=DEADLINE_SECONDS)[1] == []


@pytest.fixture
def new_world_url(postgres: EmbeddedPostgres) -> str:
    """Another database with the whole schema and no row."""
    name = f"t_{uuid7().hex}"
    _create_database(postgres, name, "template")
    return postgres.url(name)


def gigabyte(path: Path, size: int, kind: str) -> None:
    block = os.urandom(3 << 20)
    line = base64.b64encode(block[:57]) + b"\r\n"
    with path.open("wb") as file:
        file.write(b"Subject: large\r\nDate: Fri, 1 Mar 2024 10:00:00 +0000\r\n")
        if kind == "attachment":
            file.write(b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Transfer-Encoding: base64\r\n\r\n')
            encoded = b"".join(base64.b64encode(block[at : at + 57]) + b"\r\n" for at in range(0, 57 * 50_000, 57))
            while file.tell() < size:
                file.write(encoded)
            file.write(line + b"--b--\r\n")
        else:
            file.write(b"\r\n")
            while file.tell() < size:
                file.write(block)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["attachment", "plain"])
def test_a_gigabyte_is_streamed_in_bounded_memory(engine: Engine, database_url: str, tmp_path: Path, kind: str) -> None:
    set_up(engine)
    path = tmp_path / "large"
    gigabyte(path, 1 << 30 if kind == "attachment" else 300 << 20, kind)
    process = start("large", database_url, tmp_path / "packs", MAILBOX, path)
    output, errors = process.communicate(timeout=patient(300))
    assert process.returncode == 0, errors
    assert int(output.splitlines()[-1]) <= 300 << 10, "more than 300 MiB"
