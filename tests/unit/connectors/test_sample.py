from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections import Counter
from datetime import UTC, datetime
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import Message
from hashlib import sha256

import pypdfium2
import pytest

from connectors.fake.company import documents
from connectors.fake.company.broken import BROKEN
from connectors.fake.company.organisation import SampleFolder, SampleMail
from connectors.selection import FolderRole

MAIL = SampleMail("small", 1)


def _folders(mail: SampleMail = MAIL) -> list[SampleFolder]:
    return [folder for box in mail.mailboxes() for folder in mail.folders(box.address)]


@pytest.fixture(scope="module")
def messages() -> list[bytes]:
    return [folder.message(position).data or b"" for folder in _folders() for position in range(folder.count())]


@pytest.fixture(scope="module")
def parsed(messages: list[bytes]) -> list[Message]:
    return [message_from_bytes(data) for data in set(messages) if b"lantern lantern" not in data]


def _subject(message: Message) -> str:
    return str(make_header(decode_header(message["Subject"] or "")))


@pytest.mark.parametrize(("size", "boxes", "expected"), [("small", 6, 500), ("medium", 10, 3000)])
def test_sizes(size: str, boxes: int, expected: int) -> None:
    mail = SampleMail(size, 3)  # type: ignore[arg-type]
    count = sum(folder.count() for folder in _folders(mail))
    assert len(list(mail.mailboxes())) == boxes
    assert expected * 0.8 < count < expected * 1.3


def test_the_same_seed_is_the_same_mail(messages: list[bytes]) -> None:
    def digest(mail: SampleMail) -> list[str]:
        return [sha256(folder.message(0).data or b"").hexdigest() for folder in _folders(mail) if folder.count()]

    assert digest(SampleMail("small", 1)) == digest(MAIL)
    assert digest(SampleMail("small", 2)) != digest(MAIL)


def test_bytes_do_not_depend_on_what_was_made_before() -> None:
    folder = max(_folders(), key=lambda folder: folder.count())
    forwards = [folder.message(position).data for position in range(folder.count())]
    backwards = [folder.message(position).data for position in reversed(range(folder.count()))]
    assert forwards == backwards[::-1]


def test_copies_of_a_message_are_the_same_bytes(messages: list[bytes]) -> None:
    copies = Counter(messages)
    assert sum(1 for count in copies.values() if count > 1) > 100
    ids = Counter(message_from_bytes(data)["Message-ID"] for data in copies if b"lantern lantern" not in data)
    assert [name for name, count in ids.items() if count > 1 and name] == ["<invoice-4711@brasshouse.example>"]


def test_each_kind_of_damage_is_there(messages: list[bytes]) -> None:
    for marks in (b"Date: the day after", b"x-lamp-7", b'boundary="never"', b"MailGuard", b"No blank line", b'boundary="b119"'):
        assert any(marks in data for data in messages), marks
    assert any(len(line) > 2 << 20 for data in messages for line in data.split(b"\r\n") if len(data) > 2 << 20)
    assert len(BROKEN) >= 12


def test_folders_have_roles_and_some_messages_can_not_be_read() -> None:
    roles = {folder.role for folder in _folders()}
    assert {
        FolderRole.INBOX,
        FolderRole.SENT,
        FolderRole.SPAM,
        FolderRole.DRAFTS,
        FolderRole.TRASH,
        FolderRole.ARCHIVE,
        None,
    } <= roles
    unreadable = [folder.unreadable(position) for folder in _folders() for position in range(folder.count())]
    assert 2 <= sum(reason is not None for reason in unreadable) <= 8


def test_languages_and_charsets(parsed: list[Message]) -> None:
    charsets = {part.get_content_charset() for message in parsed for part in message.walk()}
    assert {"utf-8", "us-ascii", "windows-1252"} <= charsets
    medium = SampleMail("medium", 1)
    raw = b"".join(folder.message(position).data or b"" for folder in _folders(medium) for position in range(folder.count()))
    for charset in (b"iso-2022-jp", b"gb18030", b"koi8-r", b"windows-1256", b"iso-8859-9", b"iso-8859-15"):
        assert b"charset=" + charset in raw, charset
    assert b"=?iso-2022-jp?B?" in raw


def test_threads_answer_what_is_there(parsed: list[Message]) -> None:
    subjects = {message["Message-ID"]: _subject(message) for message in parsed if message["Message-ID"]}
    answers = [message for message in parsed if message["In-Reply-To"] and _subject(message).startswith("Re: ")]
    assert len(answers) > 50
    for message in answers:
        assert subjects[message["In-Reply-To"]].removeprefix("Re: ") == _subject(message).removeprefix("Re: ")


def test_no_slot_is_left_open(parsed: list[Message]) -> None:
    for message in parsed:
        for part in message.walk():
            if part.get_content_type() == "text/plain" and not part.is_multipart():
                text = part.get_payload(decode=True)
                assert isinstance(text, bytes)
                assert b"{" not in text, text


def test_automatic_mail_says_so(parsed: list[Message]) -> None:
    assert any(message.get_content_type() == "multipart/report" for message in parsed)
    assert any(message["List-Id"] for message in parsed)
    assert any((message["Auto-Submitted"] or "") == "auto-replied" for message in parsed)


def test_attachments_are_what_they_say(parsed: list[Message]) -> None:
    seen: Counter[str] = Counter()
    for message in parsed:
        for part in message.walk():
            name, data = part.get_filename(), part.get_payload(decode=True)
            if name and isinstance(data, bytes):
                seen[name.rpartition(".")[2]] += 1
                magic = {"pdf": b"%PDF-", "png": b"\x89PNG", "docx": b"PK", "csv": b"\xef\xbb\xbf", "ics": b"BEGIN:VCALENDAR"}
                assert data.startswith(magic[name.rpartition(".")[2]])
    assert set(seen) == {"pdf", "png", "docx", "csv", "ics"}


def test_pdf_can_be_read() -> None:
    document = pypdfium2.PdfDocument(documents.pdf(["Grüße (from) the \\ workshop", *map(str, range(120))]))
    assert len(document) == 3
    page = document[0].get_textpage()
    assert "Grüße (from) the \\ workshop" in page.get_text_range()
    page.close()
    document.close()


def test_docx_and_png_are_whole() -> None:
    with zipfile.ZipFile(io.BytesIO(documents.docx("A & B", ["<one>"]))) as archive:
        assert archive.testzip() is None
        assert "A &amp; B" in archive.read("word/document.xml").decode()
    image = documents.png(8, 4, 3)
    start = image.index(b"IDAT")
    length = int.from_bytes(image[start - 4 : start])
    assert len(zlib.decompress(image[start + 4 : start + 4 + length])) == 4 * (1 + 8 * 3)


def test_invitation() -> None:
    start = datetime(2024, 5, 2, 9, 30, tzinfo=UTC)
    lines = documents.invitation("1", "Round", "Table", "a@x.example", ["b@x.example"], start).decode().split("\r\n")
    assert "DTSTART:20240502T093000Z" in lines
    assert lines[0] == "BEGIN:VCALENDAR"


def test_keys_are_json_and_found_again() -> None:
    for folder in _folders():
        keys = [folder.key(position) for position in range(folder.count())]
        assert json.loads(json.dumps(keys)) == keys
        assert [folder.find(key) for key in keys] == list(range(folder.count()))
        assert folder.find("no such key") is None
