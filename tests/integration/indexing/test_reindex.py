"""The index is derived: it can be made anew beside the live one, and whatever happens to it is noticed and repaired."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text

from archiver.indexing import jobs as index_jobs
from archiver.indexing.indexes import load_indexes
from archiver.indexing.leases import Counts
from archiver.indexing.reconcile import Reconciled, reconcile
from archiver.indexing.reindex import ReindexRun
from archiver.queue.jobs import ReindexJob as ReindexJob
from archiver.retention.delete import delete_message
from archiver.search.document import GENERATION
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.indexing.test_indexing import id_of, with_file, word_file
from tests.support.store_world import mail


def fill(at: IndexWorld, count: int = 60) -> None:
    at.put(*(mail(number, f"the zebra number {number} runs") for number in range(count)))
    at.index()


def reindex(at: IndexWorld, batch: int = 20) -> ReindexRun:
    return ReindexRun(at.engine, at.archive, at.server, batch)


def indexes(at: IndexWorld) -> list[str]:
    with at.engine.connect() as connection:
        return load_indexes(connection).uids


def test_a_reindex_extracts_nothing_and_finds_everything(at: IndexWorld) -> None:
    fill(at)
    office = with_file(1, word_file("the walrus in the file"), "letter.docx", "application/msword")
    at.put(office)
    at.index()
    at.read_attachments()
    before = at.documents()
    assert reindex(at).run()  # without any extractor
    assert at.documents() == before
    assert at.find("walrus") == {id_of(office)}
    assert indexes(at) == ["messages"]
    assert at.server.info("messages-next") is None
    at.assert_agrees()


def test_it_goes_on_after_a_stop_and_what_happens_meanwhile_is_in_it(at: IndexWorld) -> None:
    fill(at)
    rounds = 0
    while not reindex(at).run(stop_after(1)):
        rounds += 1
        assert len(at.find("zebra")) >= 58  # searching goes on in the live index
        assert indexes(at) == ["messages", "messages-next"]
        if rounds == 1:
            at.put(*(mail(number, "the zebra is new") for number in range(100, 120)))
            delete_message(at.engine, at.archive, at.value("SELECT id FROM messages ORDER BY id"), "a test")
            announced = index_jobs.open_announcements(at.engine, index_jobs.BODY)
            at.indexer().remove(announced.deleted)
        at.index()
    assert rounds >= 2
    at.assert_agrees()
    assert indexes(at) == ["messages"]


def stop_after(batches: int) -> Callable[[], bool]:
    calls = iter([False] * batches)
    return lambda: next(calls, True)


def test_reindex_while_mail_arrives(at: IndexWorld) -> None:
    fill(at, 200)
    over = threading.Event()
    counts = Counts()

    def arrive() -> None:
        number = 1000
        while not over.is_set():
            at.put(*(mail(one, "a late zebra") for one in range(number, number + 5)))
            counts.add(at.index())
            number += 5

    arriving = threading.Thread(target=arrive)
    arriving.start()
    try:
        assert reindex(at, 10).run()
        assert reindex(at, 10).run()
    finally:
        over.set()
        arriving.join()
    at.index()
    assert counts.indexed > 5
    at.assert_agrees()


@pytest.mark.parametrize("when", ["before the swap", "after the swap"])
def test_a_swap_is_never_done_twice(at: IndexWorld, when: str) -> None:
    """Killed around the swap: which index is which is seen from the index itself."""
    fill(at)
    refill = reindex(at)
    building = refill._begin().building
    assert building is not None
    assert refill._fill(building, lambda: False)
    with at.engine.begin() as connection:
        connection.execute(text("UPDATE search_indexes SET is_filled = true WHERE state = 'building'"))
    if when == "after the swap":
        at.server.swap("messages", "messages-next")
    assert reindex(at).run()
    found = at.server.info("messages")
    assert found is not None
    assert found.created_at == building.engine_created_at
    at.assert_agrees()


def test_another_generation_is_built_by_itself(at: IndexWorld) -> None:
    fill(at)
    with at.engine.begin() as connection:
        connection.execute(text("UPDATE search_indexes SET generation = 'older'"))
    reconcile(at.engine, at.server)
    assert at.value("SELECT count(*) FROM outbox WHERE job = :job", job=ReindexJob.name) == 1
    assert reindex(at).run()
    assert at.value("SELECT generation FROM search_indexes") == GENERATION
    at.assert_agrees()


def test_an_index_of_another_generation_that_was_begun_is_begun_anew(at: IndexWorld) -> None:
    fill(at)
    assert not reindex(at).run(stop_after(1))
    with at.engine.begin() as connection:
        connection.execute(text("UPDATE search_indexes SET generation = 'older' WHERE state = 'building'"))
    assert reindex(at).run()
    at.assert_agrees()


# reconciliation


def test_nothing_is_compared_while_nothing_is_odd(at: IndexWorld) -> None:
    fill(at)
    assert reconcile(at.engine, at.server).compared  # it never was
    assert reconcile(at.engine, at.server) == Reconciled()
    at.put(mail(500))
    assert reconcile(at.engine, at.server) == Reconciled()


def repaired(at: IndexWorld) -> Reconciled:
    found = reconcile(at.engine, at.server)
    assert found.compared
    at.index()
    at.assert_agrees()
    assert not reconcile(at.engine, at.server).compared
    return found


def test_both_directions_are_compared_and_repaired(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    first, second, third, *_ = sorted(at.documents())
    at.server.wait(at.server.delete("messages", [first]))
    at.server.wait(at.server.add("messages", [b'{"id": "nobody", "version": 1, "text_01": "zebra"}']))
    stale = b'{"id": "%s", "version": 0}' % second.encode()
    at.server.wait(at.server.add("messages", [stale, b'{"id": "%s", "version": 99}' % third.encode()]))
    found = reconcile(at.engine, at.server, full=True)
    assert (found.missing, found.outdated, found.extra) == (1, 2, 1)
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=first) == "pending"
    assert at.value("SELECT count(*) FROM outbox WHERE job = 'index-email-batch'") >= 1
    at.index()
    at.assert_agrees()


def test_a_lost_document_is_noticed_by_the_count(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    at.server.wait(at.server.delete("messages", sorted(at.documents())[:3]))
    assert repaired(at).missing == 3


def test_an_index_that_was_dropped_is_made_again(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    at.server.drop("messages")
    assert repaired(at).missing == 60
    assert at.find("zebra")


def test_a_folder_that_was_deleted_while_the_server_runs_is_noticed(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    for folder in (at.search.folder / "indexes").iterdir():
        shutil.rmtree(folder)
    at.put(mail(700))
    at.index()
    assert repaired(at).missing >= 60


def test_a_server_that_lost_everything_is_filled_again(at: IndexWorld) -> None:
    fill(at)
    reconcile(at.engine, at.server)
    at.search.kill()
    shutil.rmtree(at.search.folder)
    at.search.start()
    assert repaired(at).missing == 60


def test_an_older_index_is_noticed(at: IndexWorld) -> None:
    """Put back from a backup, with as many documents, and other versions."""
    fill(at)
    reconcile(at.engine, at.server)
    at.search.stop()
    shutil.copytree(at.search.folder, at.search.folder.with_name("older"))
    at.search.start()
    with at.engine.begin() as connection:
        connection.execute(text("UPDATE messages SET index_version = index_version + 1"))
    at.index()
    assert not reconcile(at.engine, at.server).compared
    at.search.stop()
    shutil.rmtree(at.search.folder)
    at.search.folder.with_name("older").rename(at.search.folder)
    at.search.start()
    assert repaired(at).outdated == 60
