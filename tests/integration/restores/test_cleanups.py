"""Deleting at the source: every condition broken once, and what is deleted can be taken back."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from imapclient import IMAPClient

from archiver.access.principal import LOCAL_OPERATOR
from archiver.cleanups import deletion
from archiver.cleanups import service as cleanups
from archiver.cleanups.rows import CleanupJob
from archiver.errors import Conflict, NotAllowed, UsageError
from archiver.exports.selection import Selection
from archiver.maintenance.backups.backup import backup
from archiver.maintenance.backups.target import open_target
from archiver.maintenance.checks.verify import verify
from archiver.restores.destination import RestoreDestination
from archiver.retention.holds import NewHold
from archiver.sources import rows
from archiver.sources.rows import Source
from connectors.base import MailboxRef
from connectors.imap.trash import ImapTrash
from tests.integration.restores.conftest import RestoreWorld
from tests.integration.restores.test_provider_restores import read
from tests.support.dovecot import PASSWORD, Dovecot, message
from tests.support.google_server import GoogleServer
from tests.support.graph_server.running import GraphServer

SECRET = {"password": PASSWORD}


def folders_of(server: Dovecot, user: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with IMAPClient("localhost", server.port, ssl=False) as client:
        client.login(user, PASSWORD)
        for _, _, name in client.list_folders():
            found[name] = client.folder_status(name, ["MESSAGES"])[b"MESSAGES"]
    return +found


class Yard:
    """A mailbox with 30 messages, archived a while ago, in verified packs."""

    def __init__(self, world: RestoreWorld, dovecot: Dovecot, user: str, **settings: Any) -> None:
        self.world, self.dovecot, self.user = world, dovecot, user
        dovecot.fill(user, "INBOX", [message(number, more=user) for number in range(30)])
        values = {**dovecot.settings(user), "delete_after_days": 30, "delete_needs_backup": False, **settings}
        self.source_id = world.add_source("imap", values, SECRET)
        self.archive()

    def archive(self) -> None:
        ref = MailboxRef(f"{self.user}@localhost")
        self.box = self.world.add_mailbox(self.source_id, ref.address)
        for one in read(self.world, self.source_id, ref):
            self.world.store_keyed(self.box, one)
        self.age()
        self.verify()

    def age(self) -> None:
        self.world.act("UPDATE message_copies SET created_at = now() - interval '3 days'")

    def verify(self) -> None:
        verify(self.world.engine, self.world.work.ingest.archive, full=True)

    @property
    def source(self) -> Source:
        with self.world.engine.connect() as connection:
            found = rows.load(connection, self.source_id)
        assert found is not None
        return found

    def check(self) -> CleanupJob:
        with self.world.engine.begin() as connection:
            cleanup_id = cleanups.request(connection, LOCAL_OPERATOR, self.source)
        self.world.work_off()
        return self.job(cleanup_id)

    def start(self, job: CleanupJob) -> CleanupJob:
        with self.world.engine.begin() as connection:
            cleanups.start(connection, LOCAL_OPERATOR, job.id)
        self.world.work_off()
        return self.job(job.id)

    def job(self, cleanup_id: UUID) -> CleanupJob:
        with self.world.engine.connect() as connection:
            return cleanups.load(connection, LOCAL_OPERATOR, cleanup_id)

    def reasons(self, job: CleanupJob, outcome: str = "kept") -> Counter[str]:
        with self.world.engine.connect() as connection:
            found = cleanups.list_entries(connection, LOCAL_OPERATOR, job.id, outcome, limit=100)
        return Counter(one.reason or "" for one in found)

    def folders(self) -> Counter[str]:
        return folders_of(self.dovecot, self.user)


def test_to_the_trash_and_back(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "roomy")
    checked = yard.check()
    assert (checked.state, checked.messages, checked.ready, checked.kept) == ("ready", 30, 30, 0)
    assert yard.folders() == {"INBOX": 30}, "the dry run deletes nothing"
    done = yard.start(checked)
    assert (done.state, done.deleted, done.error) == ("done", 30, None)
    assert yard.folders() == {"Trash": 30}
    logged = world.one("SELECT count(*) FROM cleanup_messages WHERE outcome = 'deleted' AND at IS NOT NULL")
    named = world.one("SELECT sum(jsonb_array_length(detail -> 'messages')) FROM audit_log WHERE action = 'cleanup.deleted'")
    assert (logged, named) == (30, 30)
    with world.engine.begin() as connection, pytest.raises(Conflict, match="log stays"):
        cleanups.cancel(connection, LOCAL_OPERATOR, done.id)
    world.restore(Selection(everything=True), RestoreDestination(origins=True))
    assert yard.folders() == {"Trash": 30, "INBOX": 30}
    world.act("UPDATE message_copies SET gone_at = NULL")
    assert yard.reasons(yard.check()) == {"it was restored to this mailbox": 30}


def test_never_by_default_and_never_by_others(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "default", delete_after_days=None)
    with pytest.raises(UsageError, match="delete_after_days"):
        yard.check()
    user = world.user("someone@localhost", may_restore=True)
    with world.engine.begin() as connection, pytest.raises(NotAllowed):
        cleanups.request(connection, user, yard.source)


def test_young_mail_is_not_touched(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "young")
    world.act("UPDATE message_copies SET created_at = now() WHERE id IN (SELECT id FROM message_copies ORDER BY id LIMIT 5)")
    world.act(
        "UPDATE message_copies SET received_at = now() WHERE id IN (SELECT id FROM message_copies ORDER BY id DESC LIMIT 5)"
    )
    done = yard.start(yard.check())
    assert (done.messages, done.deleted, yard.folders()) == (20, 20, {"INBOX": 10, "Trash": 20})


def test_mail_on_hold_stays(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "held")
    ids = world.one("SELECT array_agg(id) FROM (SELECT id FROM messages ORDER BY id LIMIT 4) AS x")
    world.hold(NewHold("case 1", "a reason", message_ids=ids))
    checked = yard.check()
    assert (checked.ready, checked.kept) == (26, 4)
    assert yard.reasons(checked) == {"on hold: case 1": 4}
    world.hold(NewHold("case 2", "a reason", mailbox_ids=[yard.box]))
    done = yard.start(checked)
    assert (done.state, done.deleted, done.kept, yard.folders()) == ("done", 0, 30, {"INBOX": 30})


def test_only_from_verified_packs(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "unverified")
    world.act("UPDATE packs SET verified_at = NULL")
    checked = yard.check()
    assert (checked.ready, checked.kept) == (0, 30)
    assert all("not verified" in reason for reason in yard.reasons(checked))
    with world.engine.begin() as connection:
        cleanups.cancel(connection, LOCAL_OPERATOR, checked.id)
    world.act("UPDATE packs SET verified_at = (SELECT min(archived_at) - interval '1 hour' FROM messages)")
    assert yard.check().ready == 0, "verified before it was archived"


def test_only_what_is_in_a_second_place(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "copied", delete_needs_backup=True)
    stopped = yard.check()
    assert (stopped.state, "BACKUP_TARGET" in (stopped.error or "")) == ("stopped", True)
    target = world.place / "second"
    world.settings = world.settings.model_copy(update={"backup_target": str(target)})
    assert "no completed backup" in (yard.check().error or "")
    archive = world.work.ingest.archive
    backup(world.engine, archive, world.database_url, open_target(world.settings, str(target)))
    checked = yard.check()
    assert checked.ready == 30
    for pack in (target / "packs").iterdir():
        pack.unlink()
    done = yard.start(checked)
    assert (done.deleted, yard.folders()) == (0, {"INBOX": 30})
    assert all("not in the newest backup" in reason for reason in yard.reasons(done))


def test_our_copy_is_read_back_first(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "damaged")
    checked = yard.check()
    for pack in (world.settings.archiver_data / "packs").rglob("*"):
        if pack.is_file():
            data = bytearray(pack.read_bytes())
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            pack.write_bytes(data)
    done = yard.start(checked)
    assert (done.state, done.deleted, yard.folders()) == ("stopped", 0, {"INBOX": 30})
    assert "can't be read from the archive" in (done.error or "")


def test_a_difference_at_the_source_stops_it(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "changed")
    checked = yard.check()
    other = world.one("SELECT id FROM messages ORDER BY id DESC LIMIT 1")
    world.act(
        "UPDATE cleanup_messages SET provider_key = (SELECT provider_key FROM cleanup_messages WHERE number = 2)"
        " WHERE number = 1 AND message_id <> :o",
        o=other,
    )
    world.act("UPDATE message_copies c SET provider_key = c.provider_key || 'x' WHERE EXISTS ("
              "SELECT 1 FROM cleanup_messages r WHERE r.number = 2 AND r.message_id = c.message_id)")  # fmt: skip
    world.act(
        "UPDATE message_copies c SET provider_key = r.provider_key FROM cleanup_messages r"
        " WHERE r.number = 1 AND r.message_id = c.message_id"
    )
    done = yard.start(checked)
    assert (done.state, done.deleted, yard.folders()) == ("stopped", 0, {"INBOX": 30})
    assert "differs at the source" in (done.error or "")


def test_what_is_gone_is_noted_and_the_rest_goes_on(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "gone")
    checked = yard.check()
    with IMAPClient("localhost", dovecot.port, ssl=False) as client:
        client.login("gone", PASSWORD)
        client.select_folder("INBOX")
        client.delete_messages(client.search()[:3])
        client.expunge()
    done = yard.start(checked)
    assert (done.state, done.deleted, done.gone, yard.folders()) == ("done", 27, 3, {"Trash": 27})


def test_a_withdrawn_setting_a_removed_right_or_a_second_start(world: RestoreWorld, dovecot: Dovecot) -> None:
    yard = Yard(world, dovecot, "withdrawn")
    checked = yard.check()
    with pytest.raises(Conflict, match="not finished yet"):
        yard.check()
    world.act("UPDATE ingestion_sources SET settings = settings || '{\"delete_after_days\": 300}'")
    done = yard.start(checked)
    assert (done.state, done.deleted, yard.folders()) == ("stopped", 0, {"INBOX": 30})
    assert "no longer allow" in (done.error or "")
    with pytest.raises(Conflict, match="only once"):
        yard.start(checked)


def test_a_killed_worker_is_continued_and_counts_right(
    world: RestoreWorld, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends right after the server has moved a batch."""
    yard = Yard(world, dovecot, "killed-cleanup")
    checked = yard.check()
    move = ImapTrash.move

    def die(trash: ImapTrash, keys: Any) -> set[str]:
        move(trash, keys)
        raise KeyboardInterrupt

    monkeypatch.setattr(ImapTrash, "move", die)
    with pytest.raises(KeyboardInterrupt):
        yard.start(checked)
    monkeypatch.undo()
    assert yard.folders() == {"INBOX": 30 - deletion.BATCH, "Trash": deletion.BATCH}
    world.work_off()
    done = yard.job(checked.id)
    assert (done.state, done.deleted, done.gone, yard.folders()) == ("done", 30, 0, {"Trash": 30})


def test_a_server_that_refuses_stops_it(world: RestoreWorld, plain_dovecot: Dovecot) -> None:
    """It has neither MOVE nor UIDPLUS."""
    yard = Yard(world, plain_dovecot, "plain")
    done = yard.start(yard.check())
    assert (done.state, done.deleted, yard.folders()) == ("stopped", 0, {"INBOX": 30})
    assert "MOVE" in (done.error or "")


def test_gmail(world: RestoreWorld, google: GoogleServer) -> None:
    values = {**google.settings, "delete_after_days": 30, "delete_needs_backup": False}
    source_id = world.add_source("google", values, {"key": google.key})
    box = world.add_mailbox(source_id, "alice@acme.test")
    ref = MailboxRef("alice@acme.test")
    for one in read(world, source_id, ref):
        world.store_keyed(box, one)
    yard = Yard.__new__(Yard)
    yard.world, yard.source_id, yard.box = world, source_id, box
    yard.age()
    yard.verify()
    checked = yard.check()
    done = yard.start(checked)
    assert (done.state, done.deleted, done.error) == ("done", checked.ready, None)
    assert read(world, source_id, ref) == []
    assert google.calls()["trash"] == checked.ready


def test_graph(world: RestoreWorld, graph: GraphServer) -> None:
    values = {**graph.settings, "delete_after_days": 30, "delete_needs_backup": False}
    source_id = world.add_source("microsoft", values, graph.secrets)
    ref = MailboxRef("cleared@contoso.example", None, "user-cleared@contoso.example")
    box = world.add_mailbox(source_id, ref.address, ref.provider_id)
    for one in read(world, source_id, ref):
        world.store_keyed(box, one)
    yard = Yard.__new__(Yard)
    yard.world, yard.source_id, yard.box = world, source_id, box
    yard.age()
    yard.verify()
    checked = yard.check()
    graph.do(ref.address, "change", 1, edition=7)  # the server's copy of the first message changes
    stopped = yard.start(checked)
    assert (stopped.state, "differs" in (stopped.error or "")) == ("stopped", True)
    graph.do(ref.address, "change", 1, edition=0)
    again = yard.start(yard.check())
    assert (again.state, again.deleted) == ("done", 24)
    assert read(world, source_id, ref) == []
