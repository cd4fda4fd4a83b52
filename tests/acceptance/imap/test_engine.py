"""IMAP through the whole engine: real worker processes, a real Dovecot, and things that die in the middle."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from email import message_from_bytes
from hashlib import sha256
from pathlib import Path

import pytest
from imapclient import IMAPClient

from archiver.retention.delete import delete_message
from archiver.sources.rows import Source
from archiver.store.open import open_archive
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.dovecot import MASTER, MASTER_PASSWORD, PASSWORD, Dovecot, message
from tests.support.dovecot import dovecot as running_dovecot
from tests.support.tcp_proxy import proxy


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
            eventually(lambda goal=goal: len(world.archive(source)) >= goal, what="progress")
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
            eventually(lambda: len(world.archive(source)) >= 200, what="progress")
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


@pytest.mark.parametrize("kind", ["dovecot", "plain_dovecot"])
def test_deleted_mail_stays_deleted_whatever_the_server_does_to_it(
    world: World, kind: str, request: pytest.FixtureRequest
) -> None:
    """A move and a rename of the folder give each message another key; so does a new numbering, where messages have no ids."""
    dovecot: Dovecot = request.getfixturevalue(kind)
    has_ids = kind == "dovecot"
    user = "deleted-here"
    dovecot.fill(user, "INBOX", [message(number) for number in range(8)])
    dovecot.fill(user, "Work", [message(number, more="w") for number in range(4)])
    source = add(world, dovecot, user)
    world.start_worker()
    assert world.sync(source).archived == 12
    deleted = {sha256(message(0)).digest(), sha256(message(1)).digest(), sha256(message(0, more="w")).digest()}
    delete(world, deleted)
    kept = archived(world, source)
    assert len(kept) == 9

    def synced(expected: int) -> None:
        run = world.sync(source)
        assert (run.outcome, run.deleted_here, run.failed, run.missing) == ("success", expected, 0, 0)
        told = f", {expected:,} skipped: deleted from the archive" if expected else ""
        assert run.deleted_phrase == told
        assert set(archived(world, source)) == set(kept), "nothing is back, and nothing else is lost"
        assert not deleted & set(archived(world, source))

    synced(0)
    with client(dovecot, user) as mail:
        mail.select_folder("INBOX")
        found = mail.search(["HEADER", "Message-ID", message_id(0)])
        mail.copy(found, "Work")
        mail.delete_messages(found)
        mail.expunge()
    synced(1)
    with client(dovecot, user) as mail:
        mail.rename_folder("Work", "Projects")
    synced(2)
    validity = world.one("SELECT sync_state::text FROM mailboxes")
    dovecot.lose_numbering(user, "INBOX")
    synced(0 if has_ids else 1)
    dovecot.lose_numbering(user, "Projects")
    synced(0 if has_ids else 2)
    assert world.one("SELECT sync_state::text FROM mailboxes") != validity, "Dovecot kept its numbering"
    synced(0)
    assert world.one("SELECT count(*) FROM messages") == 9
    world.assert_at_rest()


def message_id(number: int) -> str:
    return str(message_from_bytes(message(number))["Message-ID"])


def delete(world: World, hashes: set[bytes]) -> None:
    archive = open_archive(world.settings, world.engine)
    for row in world.rows("SELECT id FROM messages WHERE sha256 = ANY(:hashes)", hashes=list(hashes)):
        delete_message(world.engine, archive, row.id, "asked for")
    archive.close()


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
    eventually(lambda: world.one(locks) == 1, what="the lease")
    eventually(
        lambda: len(world.rows("SELECT 1 FROM sync_runs")) >= 2 and not world.rows("SELECT 1 FROM sync_sessions"), 30, "rest"
    )
    with client(dovecot, user) as mail:
        mail.append("INBOX", message(2))
        eventually(lambda: len(world.archive(source)) == 2, what="new mail in the inbox")
        mail.create_folder("Elsewhere")
        mail.append("Elsewhere", message(3))
        eventually(lambda: len(world.archive(source)) == 3, what="new mail in another folder")
    assert world.one(locks) == 1, "two watchers"
