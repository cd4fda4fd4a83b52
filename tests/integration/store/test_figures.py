"""Figures of what is archived: the whole archive, one mailbox, one source."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from archiver.access.scope import EVERYTHING, NOTHING, MailScope
from archiver.db.tables import message_uuid
from archiver.reading import statistics
from archiver.reading.statistics import Month, Named
from archiver.retention.delete import delete_message
from archiver.search.names import DatabaseNames
from archiver.search.suggestions import Suggestion, complete, suggest
from archiver.sources import summary as source_summary
from archiver.sources.summary import MailboxKept
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import SECOND, SOURCE, World


def mail(sender: str, date: str, number: int) -> bytes:
    return f"From: {sender}\r\nTo: bob@example.com\r\nDate: {date}\r\nSubject: {number}\r\n\r\n{'x' * number}".encode()


JANUARY, MARCH, NEVER = "Tue, 02 Jan 2024 10:00:00 +0000", "Fri, 01 Mar 2024 10:00:00 +0000", "no date"
MAILS = [
    mail("Ann <ann@a.example>", JANUARY, 1),
    mail("Ann <ann@a.example>", JANUARY, 2),
    mail("Cy <cy@a.example>", MARCH, 3),
    mail("nobody", NEVER, 4),
]


def fill(world: World) -> None:
    ingest = world.open()
    in_inbox = tuple(RawMessage(f"i{number}", data, folder="INBOX") for number, data in enumerate(MAILS))
    sent = RawMessage("s", MAILS[0], folder="Sent", labels=("Later", "later too"))
    ingest.store_batch(world.origin(), Batch((*in_inbox, sent)))
    ingest.store_batch(world.origin(SECOND), Batch((RawMessage("b", MAILS[2], folder="Other"),)))


def test_the_archive_in_figures(world: World) -> None:
    fill(world)
    sizes = [len(data) for data in MAILS]
    with world.engine.connect() as connection:
        found = statistics.figures(connection, EVERYTHING)
        part = statistics.figures(connection, MailScope(frozenset({SECOND})))
        nothing = statistics.figures(connection, NOTHING)
    assert (found.messages, found.bytes) == (4, sum(sizes))
    assert (found.copies, found.copied_bytes) == (6, sum(sizes) + sizes[0] + sizes[2])
    assert found.months == (
        Month(datetime(2024, 1, 1, tzinfo=UTC), 2, sizes[0] + sizes[1]),
        Month(datetime(2024, 3, 1, tzinfo=UTC), 1, sizes[2]),
    )
    assert [month.messages for month in found.archived] == [4]
    assert found.senders == (Named("ann@a.example", 2, sizes[0] + sizes[1]), Named("cy@a.example", 1, sizes[2]))
    assert found.domains == (Named("a.example", 3, sum(sizes[:3])),)
    assert found.sources == (Named("work", 6, found.copied_bytes),)
    assert (part.messages, part.copies, part.senders) == (1, 1, (Named("cy@a.example", 1, sizes[2]),))
    assert part.stored_bytes is None
    assert (nothing.messages, nothing.copies, nothing.months, nothing.senders) == (0, 0, (), ())


def test_what_came_of_a_source(world: World) -> None:
    fill(world)
    with world.engine.connect() as connection:
        found = source_summary.kept(connection, SOURCE)
    assert (found.copies, found.messages) == (6, 4)
    assert found.copied_bytes == sum(map(len, MAILS)) + len(MAILS[0]) + len(MAILS[2])
    assert found.mailboxes == (
        MailboxKept("alice@example.org", 5, 2, 0, 0, 0),
        MailboxKept("bob@example.org", 1, 1, 0, 0, 0),
    )
    assert found.broken == (("invalid_address", 1), ("unreadable_date: no date", 1))


def test_names_are_those_of_mail_that_is_there_and_seen(world: World) -> None:
    fill(world)
    delete_message(world.engine, world.archive, message_uuid(hashlib.sha256(MAILS[0]).digest()), "personal")
    names, everything, second = DatabaseNames(world.engine), None, frozenset({SECOND})
    assert names.folders("*", everything, 10) == ["INBOX", "Other"]  # all that was in Sent is deleted
    assert names.folders("o*", second, 10) == ["Other"]
    assert names.folders("in*", second, 10) == []
    assert names.addresses("*@a.example", everything, 10) == ["ann@a.example", "cy@a.example"]
    assert names.addresses("*@a.example", second, 10) == ["cy@a.example"]
    assert names.labels("*", everything, 10) == []
    with world.engine.connect() as connection:
        assert [one.text for one in complete(connection, EVERYTHING, "in:i")] == ["in:INBOX "]
        assert complete(connection, EVERYTHING, "in:s") == []
        assert complete(connection, MailScope(second), "in:i") == []
        assert suggest(connection, EVERYTHING, "ann") == [Suggestion("address", "ann@a.example", "Ann")]
        assert suggest(connection, MailScope(second), "ann") == []


def test_labels_are_suggested(world: World) -> None:
    fill(world)
    with world.engine.connect() as connection:
        found = [one.text for one in complete(connection, EVERYTHING, "label:LATER")]
        assert complete(connection, MailScope(frozenset({SECOND})), "label:l") == []
    assert found == ["label:Later ", 'label:"later too" ']
    assert DatabaseNames(world.engine).labels("later", None, 10) == ["Later"]
