"""Back to an IMAP server: folders, flags, dates and bytes; interrupted, repeated, refused and full."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from imapclient import IMAPClient

from archiver.access.principal import LOCAL_OPERATOR
from archiver.errors import Conflict, NotAllowed, NotFound, UsageError
from archiver.exports.selection import Selection
from archiver.restores import service as restores
from archiver.restores.destination import RestoreDestination
from archiver.workflows import step_run
from tests.integration.restores.conftest import AT, RestoreWorld
from tests.support.dovecot import PASSWORD, Dovecot, message
from tests.support.imap_server import Script, imap_server

EVERYTHING = Selection(everything=True)
ORIGINS = RestoreDestination(origins=True)


def contents(server: Dovecot, user: str) -> Counter[tuple[str, str, str]]:
    """Folder, flags and hash of all messages, as a client sees them."""
    found: Counter[tuple[str, str, str]] = Counter()
    with IMAPClient("localhost", server.port, ssl=False) as client:
        client.login(user, PASSWORD)
        for attributes, _, name in client.list_folders():
            if b"\\Noselect" in attributes:
                continue
            client.select_folder(name, readonly=True)
            for data in client.fetch("1:*", ["FLAGS", "BODY.PEEK[]"]).values() if client.search() else ():
                flags = " ".join(sorted(flag.decode() for flag in data[b"FLAGS"] if flag != b"\\Recent"))
                found[name, flags, hashlib.sha256(data[b"BODY[]"]).hexdigest()] += 1
    return found


def to_account(server: Dovecot, user: str, below: str = "") -> RestoreDestination:
    return RestoreDestination(imap=server.settings(user), below=below)


def fill(world: RestoreWorld, dovecot: Dovecot, user: str) -> set[str]:
    """A mailbox of a source whose server is empty now; returns the hashes of its mail."""
    source = world.add_source("imap", dovecot.settings(user), {"password": PASSWORD})
    box = world.add_mailbox(source, f"{user}@localhost")
    world.store_mail(box, [message(number, more=user) for number in range(40)])
    world.store_mail(box, [message(number, more=f"{user}-p") for number in range(5)], "Projekte/Ü & 日本", flags=("\\Flagged",))
    return world.hashes()


def test_there_and_back_again(world: RestoreWorld, dovecot: Dovecot) -> None:
    hashes = fill(world, dovecot, "back")
    restore_id = world.request(EVERYTHING, ORIGINS)
    world.work_off()
    checked = world.job(restore_id)
    assert (checked.state, checked.absent, checked.present, checked.messages) == ("ready", 45, 0, 45)
    assert not contents(dovecot, "back"), "the dry run changes nothing"
    world.start(restore_id)
    world.work_off()
    done = world.job(restore_id)
    assert (done.state, done.restored, done.present, done.refused) == ("done", 45, 0, 0)
    found = contents(dovecot, "back")
    assert {one for _, _, one in found} == hashes
    assert Counter((folder, flags) for folder, flags, _ in found.elements()) == {
        ("INBOX", "\\Seen"): 40,
        ("Projekte/Ü & 日本", "\\Flagged"): 5,
    }
    with IMAPClient("localhost", dovecot.port, ssl=False) as client:
        client.login("back", PASSWORD)
        client.normalise_times = False
        client.select_folder("INBOX")
        assert {one[b"INTERNALDATE"] for one in client.fetch("1:*", ["INTERNALDATE"]).values()} == {AT}
    again = world.restore(EVERYTHING, ORIGINS)
    assert (again.restored, again.present) == (0, 45)
    assert contents(dovecot, "back") == found


def test_into_another_account_below_a_folder(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "first")
    some = world.one("SELECT array_agg(id) FROM (SELECT id FROM messages ORDER BY id LIMIT 7) AS x")
    done = world.restore(Selection(message_ids=tuple(some)), to_account(dovecot, "second", "Back"), PASSWORD)
    assert (done.state, done.restored) == ("done", 7)
    assert {name.partition("/")[0] for name, _, _ in contents(dovecot, "second")} == {"Back"}
    assert world.one("SELECT credentials IS NULL FROM restores"), "the password is removed when it is done"
    folder = world.restore(
        Selection(mailbox_id=world.one("SELECT id FROM mailboxes"), folder="Projekte/Ü & 日本"),
        to_account(dovecot, "third"),
        PASSWORD,
    )
    assert folder.restored == 5


def test_sent_mail_goes_to_the_folder_for_sent_mail(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "german")
    box = world.one("SELECT id FROM mailboxes")
    world.store_mail(box, [message(900)], "Gesendete Elemente")
    world.store_mail(box, [message(901)], "All Mail", labels=("Bills", "Important"))
    world.restore(EVERYTHING, to_account(dovecot, "english"), PASSWORD)
    folders = Counter(folder for folder, _, _ in contents(dovecot, "english"))
    assert (folders["Sent"], folders["Bills"], folders["Gesendete Elemente"]) == (1, 1, 0)


def test_a_killed_worker_is_continued(world: RestoreWorld, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after some outcomes were recorded and more messages were sent."""
    hashes = fill(world, dovecot, "killed")
    restore_id = world.request(EVERYTHING, ORIGINS)
    world.work_off()
    world.start(restore_id)
    report, calls = step_run.StepRun.report, []

    def die(run: step_run.StepRun, done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 2:
            raise KeyboardInterrupt
        report(run, done, total)

    monkeypatch.setattr(step_run.StepRun, "report", die)
    with pytest.raises(KeyboardInterrupt):
        world.work_off()
    monkeypatch.undo()
    world.work_off()
    done = world.job(restore_id)
    assert (done.state, done.restored + done.present, done.refused) == ("done", 45, 0)
    found = contents(dovecot, "killed")
    assert ({one for _, _, one in found}, found.total()) == (hashes, 45)


def test_a_refused_message_is_named_and_the_rest_goes_on(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "refusing")
    script = Script({"INBOX": {}}, append_says={3: "NO not this one"})
    with imap_server(script) as port:
        settings = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "a"}
        done = world.restore(EVERYTHING, RestoreDestination(imap=settings), "x")
    assert (done.state, done.restored, done.refused) == ("done", 44, 1)
    assert list(world.refusals(done.id).values()) == ["not this one"]


def test_a_full_account_stops_it_and_it_continues_later(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "overflowing")
    script = Script({"INBOX": {}}, append_says={20: "NO [OVERQUOTA] the account is full"})
    with imap_server(script) as port:
        settings = {"host": "127.0.0.1", "port": port, "tls": "none", "user": "a"}
        stopped = world.restore(EVERYTHING, RestoreDestination(imap=settings), "x")
        assert stopped.state == "failed"
        assert "full" in (stopped.error or "")
        script.append_says = {}
        world.start(stopped.id)
        world.work_off()
    done = world.job(stopped.id)
    assert (done.state, done.restored + done.present) == ("done", 45)
    assert sum(map(len, script.folders.values())) == 45


def test_a_wrong_password_stops_it_and_stays_secret(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "closed")
    restore_id = world.request(EVERYTHING, to_account(dovecot, "elsewhere"), password="hunter2")
    world.work_off()
    job = world.job(restore_id)
    assert job.state == "failed"
    assert "rejected the login" in (job.error or "")
    kept = str(world.rows("SELECT to_jsonb(r), to_jsonb(w) FROM restores r, workflow_runs w"))
    assert "hunter2" not in kept


def test_deleted_mail_is_reported(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "deleted")
    restore_id = world.request(EVERYTHING, ORIGINS)
    world.work_off()
    world.act("UPDATE message_copies SET deleted_at = now() WHERE message_id = (SELECT min(id::text)::uuid FROM messages)")
    world.start(restore_id)
    world.work_off()
    assert (world.job(restore_id).restored, len(world.refusals(restore_id))) == (44, 1)


def test_mail_of_files_has_no_mailbox_to_go_back_to(world: RestoreWorld) -> None:
    world.begin(world.file("a.mbox", 1, 2, 3))
    world.drain()
    done = world.restore(EVERYTHING, ORIGINS)
    assert (done.state, done.refused) == ("done", 3)
    assert all("no mailboxes on a server" in reason for reason in world.refusals(done.id).values())


def test_users_restore_their_own_mail_to_their_own_mailboxes(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "ann")
    source = world.add_source("imap", dovecot.settings("ben"), {"password": PASSWORD})
    other = world.add_mailbox(source, "ben@localhost")
    world.store_mail(other, [message(number, more="ben") for number in range(3)])
    ann, nobody = world.user("ann@localhost", may_restore=True), world.user("eve@localhost", may_restore=False)
    with pytest.raises(NotAllowed):
        world.request(EVERYTHING, ORIGINS, nobody)
    with pytest.raises(NotAllowed, match="own mailboxes"):
        world.request(EVERYTHING, RestoreDestination(mailbox_id=other), ann)
    with pytest.raises(NotAllowed):
        world.request(EVERYTHING, to_account(dovecot, "ann"), ann, PASSWORD)
    world.act("UPDATE users SET may_read_all = true WHERE email = 'ann@localhost'")
    restore_id = world.request(EVERYTHING, ORIGINS, ann)
    world.work_off()
    assert world.job(restore_id).messages == 45, "only her own, although she reads everything"
    with world.engine.begin() as connection, pytest.raises(NotFound):
        restores.start(connection, world.user("zoe@localhost", may_restore=True), restore_id)
    world.act("UPDATE users SET settings = '{}' WHERE email = 'ann@localhost'")
    world.start(restore_id, ann)  # (her session does not know yet)
    world.work_off()
    job = world.job(restore_id)
    assert (job.state, job.restored) == ("failed", 0)
    assert "restore" in (job.error or "")


def test_only_what_can_be_started_is_started(world: RestoreWorld, dovecot: Dovecot) -> None:
    fill(world, dovecot, "once")
    restore_id = world.request(EVERYTHING, ORIGINS)
    with pytest.raises(Conflict, match="checking"):
        world.start(restore_id)
    with world.engine.begin() as connection:
        restores.cancel(connection, LOCAL_OPERATOR, restore_id)
    world.work_off()
    assert world.job(restore_id).state == "cancelled"
    with world.engine.begin() as connection:
        restores.cancel(connection, LOCAL_OPERATOR, restore_id)
    with pytest.raises(NotFound):
        world.job(restore_id)
    with pytest.raises(UsageError, match="exactly one"):
        world.request(Selection(), ORIGINS)
    with pytest.raises(UsageError, match="one destination"):
        world.request(EVERYTHING, RestoreDestination())
