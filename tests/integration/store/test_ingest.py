"""store_batch against a real Postgres: what is archived, what is known, and what hostile mail does to it."""

import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import event, text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.db.tables import message_uuid, uuid7
from archiver.errors import UsageError
from archiver.store.errors import StoreUnavailable
from archiver.sync.ingest.provider_keys import fit_key
from archiver.sync.ingest.store_batch import BatchResult, Fence, TakenOver
from connectors.base import Batch, ChangeKind, CopyChange, FailedMessage, FolderListing, RawMessage, Skipped
from tests.integration.store.conftest import MAILBOX, SECOND, SOURCE, World
from tests.support.failing_commit import failing_commit
from tests.support.store_world import Failing, mail
from tests.support.waiting import DEADLINE_SECONDS


def batch_of(*messages: bytes, start: int = 0, **fields: object) -> Batch:
    items = tuple(
        RawMessage(f"INBOX\u241f1\u241f{start + number}", data, folder="INBOX", flags=("\\Seen",), labels=("a",))
        for number, data in enumerate(messages)
    )
    return Batch(items, **fields)  # type: ignore[arg-type]


def test_a_batch_is_archived_and_again_changes_nothing(world: World) -> None:
    ingest, attachment = world.open(), os.urandom(40_000)
    messages = [mail(number) for number in range(20)] + [mail(30, attachment=attachment), mail(31, attachment=attachment)]
    batch = batch_of(*messages, state={"imap:INBOX": {"uid": 20}})
    size = sum(map(len, messages))
    assert ingest.store_batch(world.origin(), batch) == BatchResult(archived=22, bytes=size)
    before, packs = world.content(), [path.stat().st_size for path in world.folder.iterdir()]
    assert len(before["messages"]) == 22
    assert [row.kind for row in before["objects"]].count("part") == 1
    assert world.value("SELECT count(*) FROM outbox WHERE job = 'index-email-batch'") == 1
    assert ingest.store_batch(world.origin(), batch) == BatchResult(duplicates=22)
    assert world.content() == before
    assert [path.stat().st_size for path in world.folder.iterdir()] == packs
    assert world.value("SELECT count(*) FROM outbox") == 1
    for message in messages:
        assert world.archive.read(hashlib.sha256(message).digest()) == message


def test_the_same_mail_in_two_mailboxes_is_stored_once_and_indexed_again(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), batch_of(mail(1)))
    assert ingest.store_batch(world.origin(SECOND), batch_of(mail(1))).archived == 1
    assert world.value("SELECT count(*) FROM messages") == 1
    assert world.value("SELECT count(*) FROM message_copies") == 2
    assert world.value("SELECT index_version FROM messages") == 2


def test_the_sync_state_is_merged_and_none_deletes(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch(state={"a": 1, "b": {"x": 2}}))
    ingest.store_batch(world.origin(), Batch(state={"b": None, "c": 3}))
    assert world.value("SELECT sync_state FROM mailboxes WHERE id = :id", id=MAILBOX) == {"a": 1, "c": 3}


def test_hostile_mail_is_archived_byte_for_byte(world: World) -> None:
    many = b"To: " + b", ".join(b"Person %d <p%d@example.org>" % (number, number) for number in range(50_000)) + b"\r\n"
    hostile = [
        b"",
        b"\0" * 100,
        b"no header at all, only text",
        b"Subject: no id\n\nbody",
        b"Message-ID: <same@x>\n\none",
        b"Message-ID: <same@x>\n\ntwo, with a forged id",
        b"Subject: bytes \xff\xfe\x00 and =?utf-8?b?//79?= =?utf-16?q?=d8=00?=\n\n",
        b"Date: yesterday, perhaps\nReceived: from x; the day after\n\n",
        b"Date: Mon, 31 Feb 2031 99:99:99 +9999\n\n",
        b"X-Long: " + b"x" * (2 << 20) + b"\r\nSubject: after a long header\r\n\r\nbody",
        many + b"Subject: fifty thousand\r\n\r\nbody",
        b"Subject: " + b"\xf0\x9f\x92\xa9" * 1000 + b"\n\n",
        b"From: " + b'"' * 5000 + b"\nTo: <<<>>>,,,;;;:::\n\n",
        b"Subject: a\x00b\nMessage-ID: <a\x00b@x>\nReferences: <\x00>\n\n",
    ]
    result = world.open().store_batch(world.origin(), batch_of(*hostile))
    assert (result.archived, result.failed) == (len(hostile), 0)
    for message in hostile:
        assert world.archive.read(hashlib.sha256(message).digest()) == message
    assert world.value("SELECT count(*) FROM participants WHERE role = 'to' AND address LIKE 'p%@example.org'") == 50_000
    assert world.value("SELECT count(*) FROM messages WHERE date_origin = 'none' AND sort_at = 'epoch'") >= 3
    assert world.value("SELECT count(*) FROM messages WHERE internet_message_id = 'same@x'") == 2


def test_the_corpus_is_archived_byte_for_byte(world: World, corpus: Path) -> None:
    paths = [path for folder in ("torture", "bounces") for path in (corpus / "public" / folder).rglob("*")]
    messages = {path.read_bytes() for path in paths if path.is_file()}
    assert len(messages) > 200
    ingest, ordered = world.open(), sorted(messages)
    for start in range(0, len(ordered), 200):
        portion = ordered[start : start + 200]
        assert ingest.store_batch(world.origin(), batch_of(*portion, start=start)).archived == len(portion)
    for message in ordered:
        assert world.archive.read(hashlib.sha256(message).digest()) == message


def test_an_mbox_and_an_imap_copy_of_one_mail_are_one_group(world: World) -> None:
    imap = mail(1)
    mbox = mail(1, eol="\n").replace(b"Subject:", b"Status: RO\nX-Mozilla-Status: 0001\nSubject:")
    world.open().store_batch(world.origin(), batch_of(imap, mbox))
    assert world.value("SELECT count(*) FROM messages") == 2
    assert world.value("SELECT count(DISTINCT canonical_sha256) FROM messages") == 1


def test_known_tells_copies_deleted_ones_and_dead_letters_that_are_not_due(world: World) -> None:
    ingest = world.open()
    failed = (FailedMessage("bad", "cannot be read", data=b"half a mail"), FailedMessage("due", "later"))
    ingest.store_batch(world.origin(), batch_of(mail(1), mail(2), failed=failed))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE dead_letters SET next_try_at = now() - interval '1 s' WHERE provider_key = 'due'"))
        connection.execute(text("UPDATE message_copies SET deleted_at = now() WHERE provider_key LIKE '%1'"))
    statements: list[str] = []
    event.listen(world.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    keys = [f"INBOX\u241f1\u241f{number}" for number in range(2500)] + ["bad", "due"]
    assert ingest.known(MAILBOX, keys) == {"INBOX\u241f1\u241f0", "INBOX\u241f1\u241f1", "bad"}
    assert len(statements) == 3  # one for each 1,000 keys
    assert ingest.known(SECOND, keys) == set()


def test_dead_letters_keep_their_bytes_count_once_until_due_and_go_when_the_message_comes(world: World) -> None:
    ingest = world.open()
    failed = FailedMessage("INBOX\u241f1\u241f0", "broken", data=b"half a mail")
    batch = batch_of(failed=(failed,), skipped=(Skipped("s", "spam"),))
    assert ingest.store_batch(world.origin(), batch) == BatchResult(failed=1, skipped=1)
    ingest.store_batch(world.origin(), batch)
    (row,) = world.rows("SELECT attempts, reason, raw_sha256 FROM dead_letters")
    assert (row.attempts, row.reason) == (1, "broken")
    assert world.archive.read(bytes(row.raw_sha256)) == b"half a mail"
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE dead_letters SET next_try_at = now() - interval '1 s'"))
    ingest.store_batch(world.origin(), batch)
    assert world.value("SELECT attempts FROM dead_letters") == 2
    ingest.store_batch(world.origin(), batch_of(mail(1)))
    assert world.rows("SELECT 1 FROM dead_letters") == []


def test_copies_move_change_labels_go_and_come_back(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), batch_of(*(mail(number) for number in range(4))))
    key = "INBOX\u241f1\u241f{}".format
    changes = (
        CopyChange(ChangeKind.MOVED, key(0), folder="Archive", new_provider_key="Archive\u241f1\u241f9"),
        CopyChange(ChangeKind.RELABELLED, key(1), labels=("x", "y")),
        CopyChange(ChangeKind.GONE, key(2)),
        CopyChange(ChangeKind.GONE, "unknown"),
        CopyChange(ChangeKind.MOVED, key(3), folder="Twice", new_provider_key=key(1)),  # the key is taken
    )
    assert ingest.store_batch(world.origin(), Batch(changes=changes)).changed == 4
    sizes = [path.stat().st_size for path in world.folder.iterdir()]
    assert ingest.store_batch(world.origin(), Batch(changes=changes)).changed <= 1
    copies = {row.provider_key: row for row in world.rows("SELECT * FROM message_copies")}
    assert copies["Archive\u241f1\u241f9"].folder == "Archive"
    assert copies[key(1)].labels == ["x", "y"]
    assert copies[key(2)].gone_at is not None
    assert copies[key(3)].gone_at is not None
    assert world.value("SELECT min(index_version) FROM messages") >= 2
    assert sizes
    assert ingest.store_batch(world.origin(), batch_of(mail(2), start=2)).duplicates == 1
    assert world.value("SELECT gone_at FROM message_copies WHERE provider_key = :k", k=key(2)) is None


def test_other_bytes_under_a_known_key_are_a_copy_of_their_own(world: World) -> None:
    ingest = world.open()
    ingest.store_batch(world.origin(), batch_of(mail(1)))
    assert ingest.store_batch(world.origin(), batch_of(mail(2))).archived == 1
    assert ingest.store_batch(world.origin(), batch_of(mail(2))).archived == 0
    assert world.value("SELECT count(*) FROM messages") == 2


def test_keys_and_folders_of_any_length(world: World) -> None:
    ingest = world.open()
    key = "path/" * 2000 + "\udcff\0"
    message = RawMessage(key, mail(1), folder="f" * 5000)
    assert ingest.store_batch(world.origin(), Batch((message,))).archived == 1
    assert ingest.store_batch(world.origin(), Batch((message,))).archived == 0
    assert ingest.known(MAILBOX, [key, "other"]) == {key}
    assert len(fit_key(key).encode()) <= 1000


def test_a_spooled_message_is_taken_and_a_missing_file_is_a_dead_letter(world: World, tmp_path: Path) -> None:
    big = mail(1, attachment=random.Random(1).randbytes(9 << 20))
    path = tmp_path / "spooled"
    path.write_bytes(big)
    batch = Batch((RawMessage("1", path=path), RawMessage("2", path=tmp_path / "missing")))
    result = world.open().store_batch(world.origin(), batch)
    assert (result.archived, result.failed) == (1, 1)
    assert world.archive.read(hashlib.sha256(big).digest()) == big


def _session(world: World, slice_number: int = 0) -> Fence:
    session_id = uuid7()
    with world.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO sync_sessions (id, ingestion_source_id, last_activity_at) VALUES (:i, :s, now() - interval '1 h')"
            ),
            {"i": session_id, "s": SOURCE},
        )
        connection.execute(
            text("INSERT INTO sync_session_mailboxes (session_id, mailbox_id, state, slice) VALUES (:i, :m, 'running', :n)"),
            {"i": session_id, "m": MAILBOX, "n": slice_number},
        )
    return Fence(session_id, slice_number)


def test_the_fence_lets_only_the_current_slice_in(world: World) -> None:
    ingest, fence = world.open(), _session(world, 3)
    failed = (FailedMessage("x", "no"),)
    ingest.store_batch(world.origin(), batch_of(mail(1), mail(2), failed=failed, skipped=(Skipped("s", "spam"),)), fence)
    (row,) = world.rows("SELECT * FROM sync_session_mailboxes")
    assert (row.seen, row.archived, row.duplicates, row.skipped, row.failed) == (4, 2, 0, 1, 1)
    assert row.bytes == len(mail(1)) + len(mail(2))
    assert world.value("SELECT first_run_id FROM messages LIMIT 1") == fence.session_id
    before = world.content()
    for stale in (Fence(fence.session_id, 2), Fence(uuid7(), 3)):
        with pytest.raises(TakenOver, match="another worker has taken over"):
            ingest.store_batch(world.origin(), batch_of(mail(5), start=5, state={"a": 1}), stale)
    assert world.content() == before


def test_a_batch_for_a_mailbox_that_is_gone_changes_nothing(world: World) -> None:
    origin = replace(world.origin(), mailbox_id=uuid7())
    with pytest.raises(UsageError, match="no mailbox"):
        world.open().store_batch(origin, batch_of(mail(1)))
    assert world.value("SELECT count(*) FROM messages") == 0
    assert world.value("SELECT count(*) FROM objects") == 0
    assert not list(world.folder.glob("*.pack")), "it is known before anything is written"


def test_ledger_and_audit_entry_share_the_transaction(world: World) -> None:
    listing = FolderListing("INBOX", ["k0", "k1"])
    batch = replace(batch_of(mail(1)), skipped=(Skipped("k9", "too large", "INBOX"),), listings=(listing,))
    ingest = world.open()
    with failing_commit(world.engine):
        ingest.store_batch(world.origin(), batch, submitted_by=LOCAL_OPERATOR)
    for table in ("messages", "skipped_messages", "folder_listings", "audit_log", "outbox"):
        assert world.value(f"SELECT count(*) FROM {table}") == 0, table
    ingest.store_batch(world.origin(), batch, submitted_by=LOCAL_OPERATOR)
    for table in ("messages", "skipped_messages", "folder_listings", "audit_log", "outbox"):
        assert world.value(f"SELECT count(*) FROM {table}") == 1, table


def test_dates_of_the_server_are_kept(world: World) -> None:
    received = datetime(2024, 5, 1, 12, tzinfo=UTC)
    message = b"Subject: no date\n\n"
    world.open().store_batch(world.origin(), Batch((RawMessage("1", message, received_at=received),)))
    (row,) = world.rows("SELECT sent_at, received_at, sort_at, date_origin FROM messages")
    assert (row.sent_at, row.received_at, row.sort_at, row.date_origin) == (None, received, received, "server")


def test_many_threads_store_the_same_mail_without_a_deadlock(world: World) -> None:
    ingest, errors = world.open(), []
    messages = [mail(number, attachment=bytes([number % 3]) * 30_000) for number in range(60)]

    def work(seed: int, mailbox: object) -> None:
        order = list(range(60))
        random.Random(seed).shuffle(order)
        try:
            for start in range(0, 60, 20):
                items = tuple(RawMessage(f"{seed}-{number}", messages[number]) for number in order[start : start + 20])
                ingest.store_batch(world.origin(mailbox), Batch(items))  # type: ignore[arg-type]
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(seed, (MAILBOX, SECOND)[seed % 2])) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert errors == []
    assert world.value("SELECT count(*) FROM messages") == 60
    assert world.value("SELECT count(*) FROM message_copies") == 360
    assert [world.archive.read(hashlib.sha256(message).digest()) for message in messages] == messages


def _story(ingest: object, world: World) -> None:
    """A few batches with everything in them."""
    attachment = b"%PDF" + bytes(range(256)) * 100
    batches = (
        batch_of(*(mail(number) for number in range(5)), mail(6, attachment=attachment), state={"uid": 5}),
        batch_of(
            mail(7, attachment=attachment), failed=(FailedMessage("f", "broken", data=b"half"),), start=7, state={"uid": 7}
        ),
        Batch(changes=(CopyChange(ChangeKind.MOVED, "INBOX\u241f1\u241f0", folder="Old"),), state={"uid": None}),
    )
    for batch in batches:
        for attempt in range(3):
            try:
                ingest.store_batch(world.origin(), batch)  # type: ignore[attr-defined]
                break
            except (StoreUnavailable, ConnectionError):
                assert attempt < 2


class _CommitFails:
    """The n-th COMMIT does not go through."""

    def __init__(self, world: World, fail_at: int) -> None:
        self.count, self.fail_at = 0, fail_at
        event.listen(world.engine, "commit", self)

    def __call__(self, connection: object) -> None:
        self.count += 1
        if self.count - 1 == self.fail_at:
            raise ConnectionError("injected before the commit")


def test_abort_anywhere_then_the_archive_equals_an_undisturbed_one(new_world: Callable[..., World]) -> None:
    calm_files = Failing()
    calm = new_world()
    commits = _CommitFails(calm, -1)
    _story(calm.open(calm_files), calm)
    expected = calm.content()
    assert calm_files.count > 6
    for fail_at in range(calm_files.count):
        disturbed = new_world()
        _story(disturbed.open(Failing(fail_at, torn=True)), disturbed)
        assert disturbed.content() == expected, f"file operation {fail_at}"
        assert disturbed.value("SELECT sync_state FROM mailboxes WHERE id = :id", id=MAILBOX) == {}
        disturbed.close()
    for fail_at in range(commits.count):
        disturbed = new_world()
        _CommitFails(disturbed, fail_at)
        _story(disturbed.open(), disturbed)
        assert disturbed.content() == expected, f"commit {fail_at}"
        for row in disturbed.rows("SELECT sha256 FROM messages"):
            assert hashlib.sha256(disturbed.archive.read(bytes(row.sha256))).digest() == bytes(row.sha256)
        disturbed.close()


def test_ids_come_from_the_bytes(world: World) -> None:
    world.open().store_batch(world.origin(), batch_of(mail(1)))
    assert world.value("SELECT id FROM messages") == message_uuid(hashlib.sha256(mail(1)).digest())
    assert timedelta(0) <= datetime.now(UTC) - world.value("SELECT archived_at FROM messages") < timedelta(minutes=5)
