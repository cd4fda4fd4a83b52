"""A parser that hangs, eats memory or crashes on one message among a thousand: that one fails, and all others are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.extract.pool import Children, ReadersUnavailable
from archiver.indexing.indexer import Indexer
from archiver.parsing import readers as mail_readers
from archiver.parsing.readers import MailReaders
from archiver.reading.content import Opener, UnreadableMessage
from archiver.sources import dead_letters
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.indexing.test_indexing import id_of
from tests.support.store_world import mail
from tests.support.waiting import PATIENCE

WAYS = ("hangs", "eats memory", "segfaults", "sleeps")


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailReaders]:
    """Children whose parser goes wrong when the mail says so; and those of this process are such, too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support" / "hostile_parser"))
    made = MailReaders(processes=2, seconds=8 * PATIENCE)
    monkeypatch.setattr("archiver.sync.ingest.rows.process_readers", lambda: made)
    monkeypatch.setattr("archiver.indexing.documents.process_readers", lambda: made)
    assert mail_readers.process_readers() is not made
    yield made
    made.close()


def hostile(way: str, number: int = 0) -> bytes:
    """Harmless header, hostile body."""
    return b"From: a@example.org\r\nSubject: hostile %d\r\n\r\nparser: %s\r\n" % (number, way.encode())


@pytest.mark.parametrize("way", WAYS)
def test_one_among_a_thousand_fails_alone(at: IndexWorld, readers: MailReaders, way: str) -> None:
    messages = [mail(number, f"the zebra number {number}") for number in range(1000)]
    messages.insert(617, hostile(way))
    at.put(*messages)
    counts = at.index(batch=2000)
    assert (counts.indexed, counts.failed) == (1000, 1)
    assert len(at.find("zebra")) == 1000
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(hostile(way))) == "failed"
    assert "can't be read" in at.value("SELECT reason FROM dead_letters")
    assert at.index().indexed == 0, "it is not tried again and again"
    assert at.value("SELECT count(*) FROM index_leases") == 0


def test_readers_that_cannot_start_blame_no_message(at: IndexWorld, readers: MailReaders) -> None:
    at.put(mail(1, "the zebra"))
    working = readers.children
    readers.children = Children("archiver.parsing.no_such_module", 2, 2.0)
    with pytest.raises(ReadersUnavailable, match=r"can't start: exit code 1, ModuleNotFoundError: .*no_such_module"):
        at.put(mail(2, "the zebra"))
    with pytest.raises(ReadersUnavailable):
        at.index()
    assert at.value("SELECT count(*) FROM messages") == 1, "mail is not archived with an unread header for it"
    assert at.value("SELECT search_state FROM messages") == "pending"
    readers.children.close()
    readers.children = working
    at.put(mail(2, "the zebra"))
    at.index()
    assert len(at.find("zebra")) == 2
    assert at.value("SELECT count(*) FROM dead_letters") == 0


@pytest.mark.parametrize("way", ["hangs", "segfaults"])
def test_a_header_that_nobody_can_read_is_archived_all_the_same(at: IndexWorld, readers: MailReaders, way: str) -> None:
    broken = b"From: a@example.org\r\nX-Odd: parser: %s\r\nSubject: lost\r\n\r\nbody\r\n" % way.encode()
    at.put(*(mail(number) for number in range(60)), broken, *(mail(number) for number in range(60, 100)))
    assert at.value("SELECT count(*) FROM messages") == 101
    assert at.value("SELECT count(*) FROM messages WHERE subject IS NULL") == 1
    assert at.value("SELECT defects FROM messages WHERE id = :id", id=id_of(broken)) == ["header_unreadable"]
    assert (
        at.archive.read(bytes.fromhex(at.value("SELECT encode(sha256, 'hex') FROM messages WHERE id = :id", id=id_of(broken))))
        == broken
    )


@pytest.mark.parametrize("way", ["hangs", "eats memory"])
def test_who_opens_it_is_told_and_others_go_on(at: IndexWorld, readers: MailReaders, way: str) -> None:
    data, other = hostile(way), mail(1, "the zebra runs")
    at.put(data, other)
    opener = Opener(at.archive, readers)
    by_id = {str(row.id): bytes(row.sha256) for row in at.rows("SELECT id, sha256 FROM messages")}
    content = opener.read("ann", by_id[id_of(data)], len(data), "cid")
    assert not content.opened
    assert content.reason
    with pytest.raises(UnreadableMessage, match="can't be displayed"):
        opener.frame("ann", by_id[id_of(data)], len(data), keep_remote=False)
    with pytest.raises(UnreadableMessage, match="can't be displayed"):
        opener.file("ann", by_id[id_of(data)], len(data), 0)
    assert "zebra" in opener.read("ann", by_id[id_of(other)], len(other), "cid").text


def test_who_is_not_heard_of_again_twice_while_reading_a_message_leaves_a_dead_letter(at: IndexWorld) -> None:
    """The first time all of the batch are suspected, the second time one: it was read by itself."""
    at.index()
    messages = [mail(number, f"the zebra number {number}") for number in range(20)]
    at.put(*messages)
    culprit = id_of(messages[7])
    _die_while_reading(at, at.indexer(), None)
    assert at.value("SELECT count(*) FROM reading_attempts") == 0, "counted when the lease is seen to have ended"
    _die_while_reading(at, at.indexer(), culprit)
    assert at.index().failed == 1
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=culprit) == "failed"
    assert "disappeared 2 times" in at.value("SELECT reason FROM dead_letters")
    assert len(at.find("zebra")) == 19
    assert at.value("SELECT count(*) FROM reading_attempts") == 0
    assert at.value("SELECT count(*) FROM index_leases") == 0
    with at.engine.begin() as connection:
        dead_letters.retry(connection, dead_letters.listed(connection)[0])
    assert at.index().indexed == 1, "and somebody who asks for it has it read again"
    assert len(at.find("zebra")) == 20


def _die_while_reading(at: IndexWorld, indexer: Indexer, last: str | None) -> None:
    """As a worker that is killed: it has said what it reads next, and is not heard of again."""
    lease = indexer.lease()
    assert lease is not None
    told: list[list[str]] = []

    class Killed(BaseException):
        pass

    def begin(rows: object) -> None:
        indexer._begin(lease, rows)  # type: ignore[arg-type]
        told.append([str(row.id) for row in rows])  # type: ignore[attr-defined]
        if last is None or told[-1] == [last]:
            raise Killed

    with pytest.raises(Killed):
        list(indexer._maker.make(lease.rows, lease.threads, None, begin))
    assert at.value("SELECT cardinality(reading) FROM index_leases") == (20 if last is None else 1)
    at.end_leases()


def test_a_lease_that_ends_before_anything_was_read_suspects_nobody(at: IndexWorld) -> None:
    at.index()
    at.put(mail(1))
    assert at.indexer().lease() is not None
    at.end_leases()
    assert at.index().indexed == 1
    assert at.value("SELECT count(*) FROM reading_attempts") == 0
