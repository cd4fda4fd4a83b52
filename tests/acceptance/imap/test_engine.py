"""IMAP through the whole engine: real worker processes, a real Dovecot, and things that die in the middle."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from imapclient import IMAPClient

from archiver.services.source_rows import Source
from archiver.stack.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.dovecot import MASTER, MASTER_PASSWORD, PASSWORD, Dovecot, message
from tests.dovecot import dovecot as running_dovecot
from tests.tcp_proxy import proxy


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres) as made:
        yield made


def contents(server: Dovecot, user: str) -> Counter[bytes]:
    return Counter(sha256(path.read_bytes()).digest() for path in server.maildir(user).rglob("cur/*"))


def archived(world: World, source: Source) -> Counter[bytes]:
    return Counter(sha for *_, sha in world.archive(source))


def add(world: World, server: Dovecot, user: str, **more: object) -> Source:
    return world.add_kind("imap", user, server.settings(user, **more), {"password": PASSWORD})


def client(server: Dovecot, user: str) -> IMAPClient:
    made = IMAPClient("localhost", server.port, ssl=False)
    made.login(user, PASSWORD)
    return made


@pytest.mark.parametrize("kills", [(900,), pytest.param((200, 900, 1500), marks=pytest.mark.chaos)], ids=["once", "often"])
def test_killed_workers_lose_nothing_and_archive_nothing_twice(world: World, dovecot: Dovecot, kills: tuple[int, ...]) -> None:
    user = f"killed{len(kills)}"
    dovecot.fill(user, "INBOX", [message(number, 3000) for number in range(1500)])
    dovecot.fill(user, "Sent", [message(number, 3000, "sent") for number in range(700)])
    with proxy(dovecot.port, delay=0.1) as slow:
        source = add(world, dovecot, user, port=slow.port, connections=1)
        before = world.start_sync(source)
        for goal in kills:
            worker = world.start_worker()
            eventually(lambda goal=goal: len(world.archive(source)) >= goal, 60, "progress")
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        assert len(world.archive(source)) < 2200, "it was over before it was killed"
        world.start_worker()
        run = world.wait(source, before, 120)
    assert run.outcome == "success"
    assert archived(world, source) == contents(dovecot, user)
    assert run.archived == 2200
    world.assert_at_rest()


@pytest.mark.chaos
def test_a_server_that_is_killed_in_the_middle_is_read_to_the_end_when_it_is_back(world: World) -> None:
    with running_dovecot() as server:
        server.fill("dies", "INBOX", [message(number, 20_000) for number in range(1200)])
        with proxy(server.port, delay=0.05) as slow:
            source = add(world, server, "dies", port=slow.port)
            world.start_worker()
            before = world.start_sync(source)
            eventually(lambda: len(world.archive(source)) >= 200, 60, "progress")
            server.kill()
            run = world.wait(source, before, 60)
            assert run.outcome == "failed"
            assert 200 <= len(world.archive(source)) < 1200
            server.start()
            world.edit(source)  # what a person does who does not want to wait
            assert world.sync(source).outcome == "success"
        assert archived(world, source) == contents(server, "dies")


def test_what_is_deleted_and_moved_at_the_source_is_marked_and_stays(world: World, dovecot: Dovecot) -> None:
    user = "moves"
    dovecot.fill(user, "INBOX", [message(number) for number in range(20)])
    dovecot.fill(user, "Projects", [message(number, more="p") for number in range(5)])
    source = add(world, dovecot, user)
    world.start_worker()
    assert world.sync(source).archived == 25
    with client(dovecot, user) as mail:
        mail.select_folder("INBOX")
        mail.delete_messages([1, 2, 3])
        mail.expunge()
        mail.move([4, 5], "Projects")
        mail.add_flags([6], ["\\Flagged"])
    assert world.sync(source).archived == 2
    rows = world.rows(
        "SELECT folder, gone_at IS NOT NULL AS gone, count(*) AS n FROM message_copies GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [tuple(row) for row in rows] == [("INBOX", False, 15), ("INBOX", True, 5), ("Projects", False, 7)]
    assert world.one("SELECT count(*) FROM message_copies WHERE '\\Flagged' = ANY(flags)") == 1
    again = world.sync(source)
    assert (again.archived, again.outcome) == (0, "success")
    with client(dovecot, user) as mail:
        mail.delete_folder("Projects")
    assert world.sync(source).outcome == "success"
    assert world.one("SELECT count(*) FROM message_copies WHERE folder = 'Projects' AND gone_at IS NULL") == 0
    assert world.one("SELECT count(*) FROM messages") == 25


def test_a_whole_server_through_its_master_user(world: World, dovecot: Dovecot, tmp_path: Path) -> None:
    users = [f"staff{number}@corp.example" for number in range(8)]
    for user in users:
        dovecot.fill(user, "INBOX", [message(number, more=user) for number in range(12)])
    file = tmp_path / "users.csv"
    file.write_text("user,address,name\n" + "".join(f"{user},,Person {user[5]}\n" for user in users))
    settings = {**dovecot.settings("x"), "users_file": str(file), "master_user": MASTER}
    del settings["user"]
    source = world.add_kind("imap", "corp", settings, {"password": MASTER_PASSWORD})
    world.start_worker()
    run = world.sync(source)
    assert (run.outcome, run.archived, run.mailboxes) == ("success", 96, 8)
    for user in users:
        assert Counter(row[3] for row in world.archive(source) if row[0] == user) == contents(dovecot, user)
    assert MASTER_PASSWORD not in world.log()


def test_new_mail_comes_within_seconds_where_it_is_watched_for(world: World, dovecot: Dovecot) -> None:
    user = "watched"
    dovecot.fill(user, "INBOX", [message(1)])
    source = add(world, dovecot, user, watch=True)
    world.start_worker()
    world.start_worker()
    world.sync(source)
    locks = (
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory'"
        " AND application_name = 'archiver-watcher' AND a.datname = current_database()"
    )
    eventually(lambda: world.one(locks) == 1, 20, "the lease")
    eventually(
        lambda: len(world.rows("SELECT 1 FROM sync_runs")) >= 2 and not world.rows("SELECT 1 FROM sync_sessions"), 30, "rest"
    )
    with client(dovecot, user) as mail:
        mail.append("INBOX", message(2))
        eventually(lambda: len(world.archive(source)) == 2, 20, "new mail in the inbox")
        mail.create_folder("Elsewhere")
        mail.append("Elsewhere", message(3))
        eventually(lambda: len(world.archive(source)) == 3, 20, "new mail in another folder")
    assert world.one(locks) == 1, "two watchers"
