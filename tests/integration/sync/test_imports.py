"""Imports as rows of their own: several at once, in turn, broken off at every point, and uploads kept until they are in."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError, NoResultFound

from archiver.db.states import SourceStatus
from archiver.errors import Conflict, UsageError
from archiver.queue.jobs import InitialImport, JobEnvelope, QueueName
from archiver.queue.queues import FailedJob
from archiver.retention.delete import delete_message
from archiver.sources import dead_letters, imports, upload_imports
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources.imports import Import
from archiver.store.open import open_archive
from archiver.sync import scheduler
from archiver.sync.failures import settle_failed
from tests.integration.sync.import_world import ANN, ImportWorld
from tests.support import mailfiles
from tests.support.waiting import DEADLINE_SECONDS


@pytest.fixture
def world(tmp_path: Path, engine: Engine, database_url: str) -> ImportWorld:
    return ImportWorld(tmp_path, engine, database_url)


def load_source(world: ImportWorld, item: Import) -> Any:
    with world.engine.connect() as connection:
        return source_rows.load(connection, item.source_id)


@pytest.mark.parametrize("by_upload", [(False, False), (True, True), (False, True)], ids=["commands", "uploads", "both"])
def test_two_imports_at_once_into_one_mailbox_are_two_runs(world: ImportWorld, by_upload: tuple[bool, bool]) -> None:
    for number in range(10):
        barrier = threading.Barrier(2)

        def begin(which: int, number: int = number, barrier: threading.Barrier = barrier) -> Import:
            name, first = f"{number}-{which}.mbox", number * 100 + which * 10
            data = mailfiles.mbox([mailfiles.message(first + n) for n in range(3)])
            if by_upload[which]:
                upload = world.uploaded(name, data)
                barrier.wait()
                return world.begin_upload(upload)
            path = mailfiles.put(world.place / name, data)
            barrier.wait()
            return world.begin(path)

        with ThreadPoolExecutor(2) as pool:
            begun = list(pool.map(begin, range(2)))
        world.drain()
        assert [world.load(item).outcome for item in begun] == ["success", "success"]
        assert len({world.load(item).session_id for item in begun}) == 2, "each has a run of its own"
        assert world.copies == (number + 1) * 6
    assert world.kept_files() == [], "uploads are removed after success"
    assert world.one("SELECT count(*) FROM ingestion_sources") == 1
    assert world.rows("SELECT archived FROM sync_runs WHERE archived <> 3") == []


def test_the_second_waits_for_its_turn_and_each_report_is_its_own(world: ImportWorld) -> None:
    first = world.begin(world.file("a.mbox", 1, 2))
    broken = mailfiles.put(world.place / "b" / "noise.mbox", os.urandom(2000))
    mailfiles.put(world.place / "b" / "note.txt", b"hello\n")
    second = world.begin(broken.parent)
    third = world.begin(world.file("c.mbox", 5))
    assert [world.load(one).state for one in (first, second, third)] == ["waiting"] * 3
    assert len(world.open_jobs()) == 1, "one is announced"
    world.run(world.open_jobs()[0][0])
    assert [world.load(one).state for one in (first, second, third)] == ["running", "waiting", "waiting"]
    world.drain()
    assert [world.load(one).state for one in (first, second, third)] == ["success", "incomplete", "success"]
    with world.engine.connect() as connection:
        reports = []
        for item in (first, second, third):
            run = imports.ended_run(connection, item.id)
            assert run is not None
            reports.append(imports.report(connection, item, run).figures())
    assert [report["found"] for report in reports] == [2, 0, 1]
    assert [[one["path"] for one in report["unreadable"]] for report in reports] == [[], ["noise.mbox"], []]
    assert [[one["path"] for one in report["not_mail"]] for report in reports] == [[], ["note.txt"], []]


def test_the_same_request_twice_before_it_began_is_one_import(world: ImportWorld) -> None:
    path = world.file("a.mbox", 1)
    first = world.begin(path)
    assert world.begin(path).id == first.id
    world.run(world.open_jobs()[0][0])
    again = world.begin(path)
    assert again.id != first.id, "one that reads already may have passed what came since"
    mailfiles.put(path, mailfiles.mbox([mailfiles.message(1), mailfiles.message(2)]))
    world.drain()
    assert (world.load(first).outcome, world.load(again).outcome, world.copies) == ("success", "success", 2)


def test_a_repeated_import_finds_everything_known(world: ImportWorld) -> None:
    path = world.file("a.mbox", 1, 2, 3)
    for expected in (0, 3):
        item = world.begin(path, mailbox=ANN.upper() if expected else ANN)
        world.drain()
        with world.engine.connect() as connection:
            run = imports.ended_run(connection, item.id)
            assert run is not None
            assert imports.report(connection, item, run).known == expected
    assert world.copies == 3


def test_what_was_deleted_here_is_counted_as_such_also_under_its_old_key(world: ImportWorld) -> None:
    path = world.file("a.mbox", 1, 2, 3)
    world.begin(path)
    world.drain()
    gone = world.one("SELECT message_id FROM message_copies ORDER BY provider_key LIMIT 1")
    archive = open_archive(world.settings, world.engine)
    delete_message(world.engine, archive, gone, "asked for")
    archive.close()
    for file in (path, mailfiles.put(world.place / "b.mbox", path.read_bytes())):
        item = world.begin(file)
        world.drain()
        with world.engine.connect() as connection:
            run = imports.ended_run(connection, item.id)
            assert run is not None
            told = imports.report(connection, item, run)
        assert dict(told.left_out) == {"deleted from the archive": 1}, file.name
        assert (run.outcome, run.archived + told.known, run.deleted_here) == ("success", 2, 1)
    assert world.one("SELECT count(*) FROM messages WHERE id = :id", id=gone) == 0


def test_imports_that_begin_while_others_end_are_all_read(world: ImportWorld) -> None:
    """Three people begin, two workers read, each job may run twice at once: nobody is forgotten, nothing is read by halves."""
    begun: list[Import] = []
    stop = threading.Event()
    each = 8

    def begin(who: int) -> None:
        for number in range(each):
            name, first = f"{who}-{number}.mbox", who * 1000 + number * 10
            if number % 2:
                upload = world.uploaded(name, mailfiles.mbox([mailfiles.message(first), mailfiles.message(first + 1)]))
                begun.append(world.begin_upload(upload))
            else:
                begun.append(world.begin(world.file(name, first, first + 1)))

    def work(_: int) -> list[str]:
        troubles = []
        while not stop.is_set():
            for row_id, _job in world.open_jobs()[:3]:
                try:
                    world.run(row_id)
                except (ValueError, DBAPIError, NoResultFound) as error:  # another one had it, and the queue would try again
                    troubles.append(type(error).__name__)
            stop.wait(0.01)
        return troubles

    with ThreadPoolExecutor(5) as pool:
        working = [pool.submit(work, number) for number in range(2)]
        for done in [pool.submit(begin, who) for who in range(3)]:
            done.result(timeout=DEADLINE_SECONDS)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(world.load(item).outcome is None for item in begun) and time.monotonic() < deadline:
            stop.wait(0.05)
        stop.set()
        for worker in working:
            worker.result(timeout=DEADLINE_SECONDS)
    assert {world.load(item).outcome for item in begun} == {"success"}
    assert world.copies == 3 * each * 2
    upload_imports.tidy(world.engine, world.settings)
    assert (world.kept_files(), world.open_jobs(), world.rows("SELECT 1 FROM sync_sessions")) == ([], [], [])


# --- broken off


class Died(Exception):
    """As if the process were killed."""


def test_killed_between_any_two_statements_it_ends_with_both_imports_in(world: ImportWorld) -> None:
    """Kills the worker at its n-th commit, for every n, and lets another one go on."""
    expected = 0
    for n in range(1, 40):
        upload = world.uploaded(f"u{n}.mbox", mailfiles.mbox([mailfiles.message(n * 10)]))
        begun = [world.begin(world.file(f"f{n}.mbox", n * 10 + 1, n * 10 + 2)), world.begin_upload(upload)]
        expected += 3
        was_killed = _drain_and_die(world, n)
        world.drain()
        upload_imports.tidy(world.engine, world.settings)  # as each tick does
        assert [world.load(item).outcome for item in begun] == ["success", "success"], n
        assert world.copies == expected
        assert world.kept_files() == []
        assert world.rows("SELECT 1 FROM sync_sessions") == []
        if not was_killed:
            assert n > 12, "too few commits to have been what it should be"
            return
    raise AssertionError("it never got to its end")


def _drain_and_die(world: ImportWorld, at: int) -> bool:
    """Whether the at-th commit came."""
    count = 0

    def commit(_: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Died

    event.listen(world.engine, "commit", commit)
    try:
        world.drain()
    except Died:
        return True
    finally:
        event.remove(world.engine, "commit", commit)
    return False


def test_a_job_that_was_given_up_ends_its_import_and_the_next_one_begins(world: ImportWorld) -> None:
    first, second = world.begin(world.file("a.mbox", 1)), world.begin(world.file("b.mbox", 2))
    ((row_id, _),) = world.open_jobs()
    encoded = JobEnvelope.of(InitialImport(first.source_id, str(first.id)), str(row_id)).encode()
    with world.engine.begin() as connection:
        settle_failed(connection, FailedJob(QueueName.INGESTION, str(row_id), "initial-import", encoded, "it broke", 5))
    assert (world.load(first).outcome, world.load(first).message) == ("failed", "it broke")
    with world.engine.connect() as connection, pytest.raises(imports.NotImported, match="it broke"):
        imports.ended_run(connection, first.id)
    world.drain()
    assert (world.load(second).outcome, world.copies) == ("success", 1)
    with world.engine.begin() as connection:
        (letter,) = dead_letters.listed(connection)
        dead_letters.retry(connection, letter)
    world.drain()
    assert (world.copies, world.rows("SELECT 1 FROM dead_letters")) == (2, [])


@pytest.mark.parametrize("how", ["listing", "stale"])
def test_a_file_import_is_never_started_again_by_the_clock(world: ImportWorld, how: str) -> None:
    item, waits = world.begin(world.file("a.mbox", 1)), world.begin(world.file("b.mbox", 2))
    ((row_id, _),) = world.open_jobs()
    if how == "stale":
        world.run(row_id)
        world.act("DELETE FROM outbox")
        world.act("UPDATE sync_sessions SET last_activity_at = now() - interval '1 day'")
        with world.engine.begin() as connection:
            scheduler.end_stale(connection, [one.id for one in scheduler.idle_sessions(connection, 30)], 30)
    else:
        _claim_only(world, item)
        encoded = JobEnvelope.of(InitialImport(item.source_id, str(item.id)), str(row_id)).encode()
        with world.engine.begin() as connection:
            settle_failed(connection, FailedJob(QueueName.INGESTION, str(row_id), "initial-import", encoded, "it broke", 5))
    assert world.load(item).outcome == ("stale" if how == "stale" else "failed")
    source = load_source(world, item)
    assert (source.status, source.next_due_at) == (SourceStatus.ERROR, None)
    with world.engine.begin() as connection:
        assert scheduler.start_due(connection, 10) == []
    world.drain()
    assert (world.load(waits).outcome, world.load(item).outcome == "success") == ("success", False)


def _claim_only(world: ImportWorld, item: Import) -> None:
    with world.engine.begin() as connection:
        source = source_rows.load(connection, item.source_id)
        assert source is not None
        assert imports.claim(connection, source, str(item.id)) is not None


# --- paused, removed, repeated


def test_a_paused_import_goes_on_when_it_is_resumed(world: ImportWorld) -> None:
    first, second = world.begin(world.file("a.mbox", 1, 2)), world.begin(world.file("b.mbox", 3))
    world.run(world.open_jobs()[0][0])
    with world.engine.begin() as connection:
        sources.pause(connection, load_source(world, first))
    assert [world.load(one).state for one in (first, second)] == ["waiting", "waiting"]
    world.drain()
    assert world.copies == 0
    with world.engine.begin() as connection:
        sources.resume(connection, load_source(world, first))
    world.drain()
    assert [world.load(one).outcome for one in (first, second)] == ["success", "success"]
    assert world.copies == 3


def test_a_removed_source_ends_its_imports_and_the_next_one_has_a_new_source(world: ImportWorld) -> None:
    first, second = world.begin(world.file("a.mbox", 1)), world.begin(world.file("b.mbox", 2))
    world.run(world.open_jobs()[0][0])
    with world.engine.begin() as connection:
        sources.remove(connection, load_source(world, first))
    assert [world.load(one).outcome for one in (first, second)] == ["cancelled", "cancelled"]
    world.drain()
    third = world.begin(world.file("c.mbox", 3))
    world.drain()
    assert (world.load(third).outcome, third.source_id == first.source_id) == ("success", False)


def test_sync_now_reads_again_what_did_not_succeed(world: ImportWorld) -> None:
    path = world.file("a.mbox", 1)
    hidden = path.rename(world.place / "hidden")
    with pytest.raises(Exception, match=r"a\.mbox can't be read"):
        world.begin(path)
    hidden.rename(path)
    failed = world.begin(path)
    path.rename(hidden)
    fine = world.begin(world.file("b.mbox", 2))
    world.drain()
    assert (world.load(failed).outcome, world.load(fine).outcome) == ("failed", "success")
    hidden.rename(path)
    with world.engine.begin() as connection:
        sources.sync_now(connection, load_source(world, failed))
    world.drain()
    assert world.copies == 2
    assert [one.outcome for one in world.listed()] == ["success", "success", "failed"]
    with pytest.raises(UsageError, match="is an import source"):
        sources.edit(world.engine, world.work.keyring, None, load_source(world, failed), {}, {})  # type: ignore[arg-type]


def test_what_was_uploaded_and_is_in_cannot_be_read_again(world: ImportWorld) -> None:
    item = world.begin_upload(world.uploaded("mail.mbox", mailfiles.mbox([mailfiles.message(1)])))
    world.drain()
    with pytest.raises(UsageError, match="no import is left to repeat"), world.engine.begin() as connection:
        sources.sync_now(connection, load_source(world, item))


def test_a_waiting_import_can_be_cancelled_and_one_under_way_cannot(world: ImportWorld) -> None:
    first, second = world.begin(world.file("a.mbox", 1)), world.begin(world.file("b.mbox", 2))
    world.run(world.open_jobs()[0][0])
    world.discard(second)
    with pytest.raises(Conflict, match="is running"):
        world.discard(first)
    world.drain()
    assert [world.load(one).outcome for one in (first, second)] == ["success", "cancelled"]
    assert world.copies == 1


def test_names_of_files_are_held_against_what_is_known(world: ImportWorld) -> None:
    folder = world.place / "mail"
    for name, number in (("a.eml", 1), ("b%_.eml", 2), ("ab.eml", 3)):
        mailfiles.put(folder / name, mailfiles.message(number))
    world.begin(folder)
    world.drain()
    mailbox_id = world.one("SELECT id FROM mailboxes")
    mark = "\u241f"
    asked = [f"{name}{mark}" for name in ("a.eml", "a", "a.em", "b%_.eml", "%", "bxx.eml", "ab.eml", "")]
    (key,) = (row[0] for row in world.rows("SELECT provider_key FROM message_copies WHERE provider_key LIKE 'ab%'"))
    assert world.work.ingest.known(mailbox_id, [*asked, key, f"{key}0"]) == {
        f"a.eml{mark}",
        f"b%_.eml{mark}",
        f"ab.eml{mark}",
        key,
    }
