"""From archived to found: documents follow messages, copies and attachments, whatever stands in the way."""

from __future__ import annotations

import base64
import io
import zipfile
from datetime import UTC, datetime
from json import loads
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from archiver.config import load_settings
from archiver.db.ids import message_uuid, uuid7
from archiver.extract import EXTRACTOR_VERSION
from archiver.indexing import jobs as index_jobs
from archiver.indexing.indexer import Indexer
from archiver.indexing.message_reader import MailReader
from archiver.mail.attachments import Attachment
from archiver.mail.message import read_texts
from archiver.parsing.readers import ReadFile, process_readers
from archiver.retention.delete import delete_message
from archiver.search.document import split_passages
from archiver.search.index import SearchServer, SearchUnavailable
from archiver.sources import dead_letters
from archiver.store.content import MemoryContent, sha256_of
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.indexing.conftest import IndexWorld
from tests.integration.store.conftest import MAILBOX, SECOND
from tests.support.refusing_proxy import refusing
from tests.support.store_world import mail

_WORD_XML = (
    '<?xml version="1.0"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    "<w:t>{}</w:t></w:r></w:p></w:body></w:document>"
)


def word_file(text: str) -> bytes:
    """A real .docx, as small as can be, and padded so that the store cuts it out as a part."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("[Content_Types].xml", '<?xml version="1.0"?><Types/>')
        archive.writestr("word/document.xml", _WORD_XML.format(text))
        archive.writestr("word/media/image.bin", bytes(range(256)) * 100)
    return made.getvalue()


def with_file(number: int, content: bytes, name: str, media_type: str) -> bytes:
    encoded = base64.encodebytes(content).replace(b"\n", b"\r\n")
    return (
        b"Message-ID: <f%d@example.org>\r\nFrom: ann@example.org\r\nTo: bob@example.org\r\nSubject: file %d\r\n"
        b'Date: Tue, 05 Mar 2024 10:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="=_b"\r\n\r\n'
        b"--=_b\r\nContent-Type: text/plain\r\n\r\nsee the file\r\n"
        b'--=_b\r\nContent-Type: %s; name="%s"\r\nContent-Transfer-Encoding: base64\r\n\r\n%s--=_b--\r\n'
        % (number, number, media_type.encode(), name.encode(), encoded)
    )


def id_of(data: bytes) -> str:
    return str(message_uuid(sha256_of(MemoryContent(data))))


def test_archived_mail_is_found(at: IndexWorld) -> None:
    at.put(*(mail(number, f"the zebra number {number} runs") for number in range(30)))
    counts = at.index(batch=7)
    assert (counts.indexed, counts.failed, counts.waiting) == (30, 0, 0)
    at.assert_agrees()
    assert at.value("SELECT count(*) FROM messages WHERE search_state = 'full'") == 30
    assert len(at.find("zebra")) == 30
    assert at.index().indexed == 0


def test_a_new_copy_a_move_and_a_label_change_the_document(at: IndexWorld) -> None:
    data = mail(1)
    at.ingest.store_batch(at.origin(), Batch((RawMessage("k1", data, folder="INBOX"),)))
    at.index()
    at.put(data, mailbox=SECOND, folder="Shared")
    at.change(CopyChange(ChangeKind.MOVED, "k1", folder="Old/2024", labels=("Red",)))
    assert at.index().indexed == 1
    (document,) = at.documents().values()
    assert sorted(document["mailbox"]) == sorted([str(MAILBOX), str(SECOND)])
    assert f"{MAILBOX}/Old/2024" in document["folder"]
    assert f"{MAILBOX}/INBOX" not in document["folder"]
    assert document["label"] == [f"{MAILBOX}/Red"]
    at.assert_agrees()


def test_a_deleted_message_takes_its_document_and_its_texts_along(at: IndexWorld) -> None:
    kept, gone = with_file(1, word_file("kept"), "a.docx", "application/msword"), mail(2)
    lost = with_file(3, word_file("lost words"), "b.docx", "application/msword")
    at.put(kept, gone, lost)
    at.index()
    at.read_attachments()
    for data in (gone, lost):
        delete_message(at.engine, at.archive, UUID(id_of(data)), "a test")
    announced = index_jobs.open_announcements(at.engine, index_jobs.BODY)
    assert sorted(announced.deleted) == sorted([id_of(gone), id_of(lost)])
    at.indexer().remove(announced.deleted)
    index_jobs.close(at.engine, index_jobs.BODY, announced, is_unfinished=False)
    assert at.rows("SELECT 1 FROM outbox") == []
    assert list(at.documents()) == [id_of(kept)]
    assert at.value("SELECT count(*) FROM attachments") == at.value("SELECT count(*) FROM objects WHERE kind = 'text'") == 1


def test_what_is_deleted_while_it_is_sent_leaves_no_document(at: IndexWorld) -> None:
    at.index()
    data = mail(1)
    at.put(data, mail(2))
    indexer = at.indexer()
    lease = indexer.lease()
    assert lease is not None
    delete_message(at.engine, at.archive, UUID(id_of(data)), "a test")
    indexer.index(lease, lambda unread: None)
    assert list(at.documents()) == [id_of(mail(2))]


def test_the_text_of_attachments_comes_after_the_body(at: IndexWorld) -> None:
    office = with_file(1, word_file("the walrus in the file"), "letter.docx", "application/octet-stream")
    same = with_file(2, word_file("the walrus in the file"), "copy.docx", "application/msword")
    locked = with_file(3, b"%PDF-1.4 nothing that can be read", "scan.pdf", "application/pdf")
    inside = (
        b"Message-ID: <outer@x>\r\nFrom: a@x\r\nSubject: outer\r\nContent-Type: message/rfc822\r\n\r\n"
        b"Message-ID: <inner@x>\r\nFrom: b@x\r\nSubject: inner\r\n\r\nthe narwhal inside\r\n"
    )
    at.put(office, same, locked, inside)
    counts = at.index()
    assert (counts.indexed, counts.waiting) == (4, 3)
    assert at.find("walrus") == set()
    assert at.find("narwhal") == {id_of(inside)}
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(inside)) == "full"
    assert at.read_attachments().indexed == 3
    assert at.find("walrus") == {id_of(office), id_of(same)}
    at.assert_agrees()
    states = {str(row.id): (row.search_state, row.search_reasons) for row in at.rows("SELECT * FROM messages")}
    assert states[id_of(office)] == states[id_of(same)] == ("full", [])
    state, reasons = states[id_of(locked)]
    assert state == "partial"
    assert [reason["file"] for reason in reasons] == ["scan.pdf"]
    texts = at.rows("SELECT text_state, extractor_version FROM attachments ORDER BY text_state")
    assert [tuple(row) for row in texts] == [("broken", EXTRACTOR_VERSION), ("empty", 0), ("ok", EXTRACTOR_VERSION)]
    assert at.value("SELECT count(*) FROM objects WHERE kind = 'text'") == 1
    (entry,) = at.documents()[id_of(office)]["pages"]
    assert entry["file"] == "letter.docx"


def test_a_refused_document_becomes_a_dead_letter_and_the_rest_goes_through(at: IndexWorld) -> None:
    poison = mail(3, "a poisonous word")
    at.put(*(mail(number) for number in range(3)), poison)
    with refusing(at.search.url, b"poisonous") as url:
        settings = load_settings({"MEILI_HOST": url, "MEILI_MASTER_KEY": "a-master-key-for-tests"}, Path("none"))
        counts = Indexer(at.engine, at.archive, SearchServer(settings), 500).run()
    assert (counts.indexed, counts.failed) == (3, 1)
    assert set(at.documents()) == {id_of(mail(number)) for number in range(3)}
    with at.engine.begin() as connection:
        (letter,) = dead_letters.listed(connection)
        assert (letter.kind, str(letter.message_id)) == ("document", id_of(poison))
        assert "rejected" in letter.reason
        assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(poison)) == "failed"
        dead_letters.retry(connection, letter)
    assert at.index().indexed == 1
    assert at.rows("SELECT * FROM dead_letters") == []
    at.assert_agrees()


def test_a_message_that_can_not_be_read_is_named_and_the_others_go_on(at: IndexWorld) -> None:
    at.put(mail(1), mail(2))
    with at.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM objects WHERE sha256 = %s", (sha256_of(MemoryContent(mail(1))),))
    counts = at.index()
    assert (counts.indexed, counts.failed) == (1, 1)
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(mail(1))) == "failed"
    assert "can't be read" in at.value("SELECT reason FROM dead_letters")


def test_a_message_that_fails_beside_others_fails_alone(at: IndexWorld) -> None:
    """That a file of it is gone shows when the mail inside it has to be read as a whole: after all of them were opened."""
    outer = b"Message-ID: <outer@example.org>\r\nFrom: a@example.org\r\nContent-Type: message/rfc822\r\n\r\n"
    broken = outer + with_file(0, bytes(range(256)) * 200, "a.pdf", "application/pdf")
    at.put(mail(1), broken, mail(2))
    with at.engine.begin() as connection:
        assert connection.exec_driver_sql("DELETE FROM objects WHERE kind = 'part'").rowcount == 1
    counts = at.index()
    assert (counts.indexed, counts.failed) == (2, 1)
    assert set(at.documents()) == {id_of(mail(1)), id_of(mail(2))}
    assert at.value("SELECT search_state FROM messages WHERE id = :id", id=id_of(broken)) == "failed"
    assert "can't be read" in at.value("SELECT reason FROM dead_letters")


def test_without_the_search_server_nothing_is_lost_and_nobody_waits_for_leases(at: IndexWorld) -> None:
    at.put(*(mail(number) for number in range(20)))
    at.index()
    at.put(*(mail(number) for number in range(20, 40)))
    at.search.kill()
    with pytest.raises(SearchUnavailable):
        at.index()
    assert at.value("SELECT count(*) FROM index_leases") == 0
    at.search.start()
    assert at.index().indexed == 20
    at.assert_agrees()


def test_several_share_the_work(at: IndexWorld) -> None:
    at.put(*(mail(number) for number in range(200)))
    at.indexer().run(lambda: True)  # the index is there
    done: list[int] = []
    threads = [Thread(target=lambda: done.append(at.indexer(10).run().indexed)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(done) <= 200
    at.assert_agrees()


def test_who_has_lost_a_lease_makes_the_document_due_again(at: IndexWorld) -> None:
    at.put(mail(1))
    slow = at.indexer()
    lease = slow.lease()
    assert lease is not None
    at.end_leases()
    at.index()
    slow.index(lease, lambda unread: None)  # writes over a document that may have been a newer one
    assert at.index().indexed == 1
    at.assert_agrees()


def test_an_ended_lease_is_its_holders_until_somebody_drops_it(at: IndexWorld) -> None:
    at.index()
    at.put(mail(1), mail(2))
    late = at.indexer()
    lease = late.lease()
    assert lease is not None
    at.end_leases()
    assert late.index(lease, lambda unread: None).indexed == 2
    at.assert_agrees()
    assert at.index().indexed == 0


def test_messages_of_an_ended_lease_go_to_the_next_one_whoever_is_done_first(at: IndexWorld) -> None:
    at.index()
    at.put(*(mail(number) for number in range(3)))
    late, second = at.indexer(), at.indexer()
    lost = late.lease()
    assert lost is not None
    assert second.lease() is None
    at.end_leases()
    taken = second.lease()
    assert taken is not None
    assert taken.ids == lost.ids
    lost.renewed = 0.0  # it renews what is another's by now
    late.index(lost, lambda unread: None)
    assert at.indexer().lease() is None, "they are leased, and due once more when that is over"
    assert second.index(taken, lambda unread: None).indexed == 3
    assert at.index().indexed == 3
    at.assert_agrees()
    assert at.value("SELECT count(*) FROM index_leases") == 0
    assert at.index().indexed == 0


def test_attachments_of_an_ended_lease_are_read_by_the_next_one_and_once(at: IndexWorld) -> None:
    office = with_file(1, word_file("the walrus in the file"), "letter.docx", "application/msword")
    at.put(office)
    at.index()
    late = at.indexer()
    lease = late.lease_unread(10, 0, 1 << 40)
    assert lease is not None
    at.end_leases()
    assert at.index().waiting == 1
    assert at.read_attachments().indexed == 1
    late.index(lease, lambda unread: pytest.fail("they have been read"))
    assert at.index().indexed == 1
    at.assert_agrees()
    assert at.find("walrus") == {id_of(office)}
    assert at.value("SELECT search_state FROM messages") == "full"
    assert at.value("SELECT count(*) FROM message_attachments") == 1
    assert at.value("SELECT count(*) FROM objects WHERE kind = 'text'") == 1
    assert at.value("SELECT count(*) FROM index_leases") == 0


def test_a_message_whose_attachments_nobody_goes_on_reading_is_seen_to_by_both_stages(at: IndexWorld) -> None:
    """Its document is behind since it was leased."""
    at.put(with_file(1, word_file("walrus"), "letter.docx", "application/msword"))
    at.index()
    index_jobs.close(at.engine, index_jobs.BODY, index_jobs.open_announcements(at.engine, index_jobs.BODY), is_unfinished=False)
    assert at.indexer().lease_unread(10, 0, 1 << 40) is not None
    announced = index_jobs.open_announcements(at.engine, index_jobs.ATTACHMENTS)
    index_jobs.close(at.engine, index_jobs.ATTACHMENTS, announced, is_unfinished=False)
    due = at.rows("SELECT coalesce(payload->'data'->>'stage', 'body') AS stage FROM outbox WHERE available_at > now()")
    assert sorted(row.stage for row in due) == [index_jobs.ATTACHMENTS.stage, index_jobs.BODY.stage]


def test_leases_follow_the_packs(at: IndexWorld) -> None:
    for start in range(0, 60, 20):
        at.put(*(mail(number) for number in range(start, start + 20)))
    places = []
    indexer = at.indexer(25)
    while lease := indexer.lease():
        places += [(row.pack_id, row.position) for row in lease.rows]
    assert len(places) == 60
    assert places == sorted(places)


def test_mail_read_without_its_files_means_the_same(at: IndexWorld, corpus: Path) -> None:
    """Whatever stays in the packs, the message is that of all its bytes."""
    paths = [path for path in sorted((corpus / "public" / "real").rglob("*")) if path.is_file()]
    messages = [path.read_bytes() for path in sorted(paths, key=lambda path: path.stat().st_size)[-100:]]
    messages += [path.read_bytes() for path in sorted((corpus / "public" / "torture").rglob("*")) if path.is_file()]
    content = bytes(range(256)) * 200
    kinds = ("application/pdf", "image/png", "application/octet-stream", "text/plain", "application/ms-tnef", "x-odd/thing")
    filed = [with_file(number, bytes([number]) + content, "a.bin", kind) for number, kind in enumerate(kinds)]
    nested = b"From: a@x\r\nSubject: outer\r\nContent-Type: message/rfc822\r\n\r\n" + filed[0]
    messages += [*filed, nested, with_file(9, b"\x78\x9f\x3e\x22" + content, "winmail.dat", "application/octet-stream")]
    at.put(*messages)
    reader = MailReader(at.archive)
    left_out = 0
    distinct = list(dict.fromkeys(messages))
    opened = [reader.open(sha256_of(MemoryContent(data)), None) for data in distinct]
    inputs: list[list[Any]] = [[str(uuid7()), 1, "00" * 32, datetime.now(UTC), 1, *[None] * 4, [], [], {}] for _ in distinct]
    with process_readers().group() as group:
        stored = reader.read(group, opened)
        documents = group.documents(inputs)
    for data, read, document in zip(distinct, stored, documents, strict=True):
        (whole,) = read_texts([data])
        left_out += sum(file.is_part for file in read.files)
        text = "".join(passage for passages in split_passages(whole.text, whole.spans) for passage in passages)
        found = loads(document.json)
        shown = "".join("".join(found.get(name, "")) for name in ("text_01", "text_02"))
        assert "".join(shown.split())[:1000] == "".join(text.split())[:1000]
        assert [_shown(one) for one in read.files] == [_shown(one) for one in whole.attachments]
    assert left_out >= 3


def _shown(attachment: Attachment | ReadFile) -> tuple[object, ...]:
    return attachment.name, attachment.position, attachment.size_bytes, attachment.sha256, attachment.is_message


def test_whatever_was_made_to_break_parsers_becomes_a_document(at: IndexWorld, corpus: Path) -> None:
    paths = [path for kind in ("torture", "bounces") for path in (corpus / "public" / kind).rglob("*") if path.is_file()]
    at.put(*(path.read_bytes() for path in paths))
    assert at.index().failed == 0
    at.assert_agrees()
