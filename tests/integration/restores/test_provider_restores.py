"""Back to Gmail and to Microsoft 365."""

from __future__ import annotations

import hashlib
from uuid import UUID

from archiver.exports.selection import Selection
from archiver.restores.destination import RestoreDestination
from archiver.sources import rows
from archiver.sources.access import open_source
from archiver.sources.null_context import QuietContext
from connectors.base import MailboxRef, RawMessage
from tests.integration.restores.conftest import RestoreWorld
from tests.support.google_server import GoogleServer
from tests.support.graph_server.running import GraphServer

WITHOUT_ID = b"From: a@example.org\r\nSubject: no id\r\nDate: Tue, 02 Mar 2021 10:00:00 +0000\r\n\r\nno id\r\n"


def read(world: RestoreWorld, source_id: UUID, ref: MailboxRef) -> list[RawMessage]:
    """Everything in the mailbox, through the connector."""
    with world.engine.connect() as connection:
        source = rows.load(connection, source_id)
    assert source is not None
    connector = open_source(source, world.work.keyring, QuietContext())
    try:
        return [message for batch in connector.fetch(ref, {}, lambda keys: set()) for message in batch.messages]
    finally:
        connector.close()


def hashes_of(messages: list[RawMessage]) -> list[str]:
    return sorted(hashlib.sha256(one.data or b"").hexdigest() for one in messages)


def store_all(world: RestoreWorld, mailbox_id: UUID, messages: list[RawMessage]) -> None:
    for one in messages:
        more = {"flags": one.flags, "labels": one.labels, "received_at": one.received_at}
        world.store_mail(mailbox_id, [one.data or b""], one.folder, **more)


def google_source(world: RestoreWorld, google: GoogleServer) -> UUID:
    return world.add_source("google", {**google.settings, "include_spam": True, "include_trash": True}, {"key": google.key})


def test_gmail_there_and_back_again(world: RestoreWorld, google: GoogleServer) -> None:
    source = google_source(world, google)
    original = read(world, source, MailboxRef("alice@acme.test"))[-12:]
    alice = world.add_mailbox(source, "alice@acme.test")
    empty = world.add_mailbox(source, "empty@acme.test")
    store_all(world, alice, original)
    world.store_mail(alice, [WITHOUT_ID], "Projekte/2021", flags=())
    everything, to_empty = Selection(mailbox_id=alice), RestoreDestination(mailbox_id=empty)
    restore_id = world.request(everything, to_empty)
    world.work_off()
    assert (world.job(restore_id).absent, read(world, source, MailboxRef("empty@acme.test"))) == (len(original) + 1, [])
    done = world.restore(everything, to_empty)
    assert (done.state, done.restored, done.refused) == ("done", len(original) + 1, 0)
    found = read(world, source, MailboxRef("empty@acme.test"))
    assert set(hashes_of(found)) == world.hashes()
    assert len(found) == len(original) + 1
    before = {hashlib.sha256(one.data or b"").digest(): (one.labels, one.flags) for one in original}
    after = {hashlib.sha256(one.data or b"").digest(): (one.labels, one.flags) for one in found}
    assert after.pop(hashlib.sha256(WITHOUT_ID).digest()) == (("Projekte/2021",), ())
    assert {key: value for key, value in after.items() if before[key] != value} == {}, "labels and flags"
    again = world.restore(everything, to_empty)
    assert (again.restored, again.present) == (0, len(original) + 1)


def test_gmail_that_refuses_one_is_full_or_allows_no_writing(world: RestoreWorld, google: GoogleServer) -> None:
    source = google_source(world, google)
    box = world.add_mailbox(source, "empty@acme.test")
    mails = [WITHOUT_ID.replace(b"no id", b"number %d" % number) for number in range(6)]
    world.store_mail(box, mails)
    google.tell(world={"refuse": "number 3", "most_messages": 4})
    stopped = world.restore(Selection(everything=True), RestoreDestination(origins=True))
    assert stopped.state == "failed"
    assert "full" in (stopped.error or "")
    google.tell(world={"refuse": "number 3", "most_messages": 100})
    world.start(stopped.id)
    world.work_off()
    done = world.job(stopped.id)
    assert (done.state, done.restored, done.refused) == ("done", 5, 1)
    assert list(world.refusals(done.id).values()) == ["Invalid message"]
    google.tell(world={"scopes": [one for one in google.world["scopes"] if "modify" not in one]})
    google.key = google.new_key("other")
    source = google_source(world, google)
    closed = world.add_mailbox(source, "empty@acme.test")
    restore_id = world.request(Selection(mailbox_id=box), RestoreDestination(mailbox_id=closed))
    world.work_off()
    assert "gmail.modify" in (world.job(restore_id).error or "")


def test_graph_there_and_back_again(world: RestoreWorld, graph: GraphServer) -> None:
    source = world.add_source("microsoft", graph.settings, graph.secrets)
    boxes = {name: MailboxRef(f"{name}@contoso.example", None, f"user-{name}@contoso.example") for name in ("full", "empty")}
    ids = {name: world.add_mailbox(source, ref.address, ref.provider_id) for name, ref in boxes.items()}
    for number in list(range(1, 25)):
        graph.do(boxes["empty"].address, "delete", number)
    original = read(world, source, boxes["full"])
    store_all(world, ids["full"], original)
    world.store_mail(ids["full"], [WITHOUT_ID], "Neu/Unten", flags=("\\Flagged",), labels=("Blue",))
    everything, to_empty = Selection(mailbox_id=ids["full"]), RestoreDestination(mailbox_id=ids["empty"])
    done = world.restore(everything, to_empty)
    assert (done.state, done.restored, done.refused) == ("done", len(original) + 1, 0)
    found = read(world, source, boxes["empty"])
    assert hashes_of(found) == sorted(world.hashes())
    place = {hashlib.sha256(one.data or b"").hexdigest(): (one.folder, one.labels, "\\Seen" in one.flags) for one in found}
    assert place.pop(hashlib.sha256(WITHOUT_ID).hexdigest()) == ("Neu/Unten", ("Blue",), False)
    before = {hashlib.sha256(one.data or b"").hexdigest(): (one.folder, one.labels, "\\Seen" in one.flags) for one in original}
    assert place == before
    again = world.restore(everything, to_empty)
    assert (again.restored, again.present) == (0, len(original) + 1)


def test_graph_continues_with_a_message_that_was_created_and_not_moved(world: RestoreWorld, graph: GraphServer) -> None:
    source = world.add_source("microsoft", graph.settings, graph.secrets)
    ref = MailboxRef("killed@contoso.example", None, "user-killed@contoso.example")
    box = world.add_mailbox(source, ref.address, ref.provider_id)
    world.store_mail(box, [WITHOUT_ID, WITHOUT_ID + b"two\r\n"], "Projects")
    restore_id = world.request(Selection(everything=True), RestoreDestination(origins=True))
    world.work_off()
    graph.control(trouble={"fail": {"move": [500, "Broken", 1]}})
    world.start(restore_id)
    world.work_off()
    graph.control(trouble={})
    job = world.job(restore_id)
    assert (job.restored, job.refused) == (1, 1), "one was created, and its move was refused"
    world.act("UPDATE restores SET state = 'ready'")
    world.start(restore_id)
    world.work_off()
    assert world.job(restore_id).restored == 2
    found = [one for one in read(world, source, ref) if b"no id" in (one.data or b"")]
    assert (len(found), {one.folder for one in found}) == (2, {"Projects"})


def test_graph_that_refuses_one_or_is_full(world: RestoreWorld, graph: GraphServer) -> None:
    source = world.add_source("microsoft", graph.settings, graph.secrets)
    box = world.add_mailbox(source, "odd@contoso.example", "user-odd@contoso.example")
    world.store_mail(box, [b"X-Refuse: yes\r\n" + WITHOUT_ID, WITHOUT_ID], "Inbox")
    done = world.restore(Selection(everything=True), RestoreDestination(origins=True))
    assert (done.state, done.restored, done.refused) == ("done", 1, 1)
    assert "ErrorInvalidRecipients" in next(iter(world.refusals(done.id).values()))
    world.store_mail(box, [b"X-Full: yes\r\n" + WITHOUT_ID], "Inbox")
    stopped = world.restore(Selection(everything=True), RestoreDestination(origins=True))
    assert stopped.state == "failed"
    assert "full" in (stopped.error or "")
