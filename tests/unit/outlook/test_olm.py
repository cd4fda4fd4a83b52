"""OLM: what becomes a message, always the same bytes, and files that mean harm."""

from __future__ import annotations

import hashlib
import zipfile
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from archiver.outlook.reader import open_outlook
from archiver.sources.null_context import QuietContext
from connectors.files import FilesConnector, FilesSettings
from connectors.outlook import OLM, OutlookEntry, OutlookUnreadable
from tests.support.olm_files import ACCOUNT, email, sample, write_olm

MESSAGES = f"{ACCOUNT}/com.microsoft.__Messages"


def read(path: Path, start: int = 0) -> list[OutlookEntry]:
    with path.open("rb") as file:
        opened = open_outlook(file.fileno(), OLM)
        try:
            return list(opened.entries(start))
        finally:
            opened.close()


def test_messages_folders_and_attachments(tmp_path: Path) -> None:
    entries = read(sample(tmp_path / "mail.olm"))
    assert [entry.folder for entry in entries] == [("Inbox",), ("Inbox",), ("Projects", "2015")]
    assert [entry.flags for entry in entries] == [("\\Seen",), (), ("\\Seen",)]
    assert [entry.problems for entry in entries] == [(), (), ()]
    assert str(entries[0].received_at) == "2015-06-02 10:11:20+00:00"
    first, second, third = (message_from_bytes(entry.data or b"", policy=policy.default) for entry in entries)
    assert (first["Subject"], first["Message-ID"], first["To"].count("@")) == ("Grüße 1 & mehr", "<1@mac.example.org>", 2)
    assert str(first["From"]) == "Ann Müller <ann@example.org>"
    assert "dee@example.org" in first["Cc"]
    assert first.get_content().strip() == "Hello number 1."
    assert first["X-Archiver-Converted-From"].startswith("OLM")
    assert [part.get_content_type() for part in second.walk() if not part.is_multipart()] == [
        "text/plain",
        "text/html",
        "image/png",
    ]
    (picture,) = second.iter_attachments()
    assert (picture.get_filename(), picture.get_content()) == ("Bild ü.png", bytes(range(256)) * 400)
    assert third.get_content_type() == "text/html"


def test_the_same_item_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = read(sample(tmp_path / "a.olm")), read(sample(tmp_path / "b.olm"))
    digests = [hashlib.sha256(entry.data or b"").hexdigest() for entry in one]
    assert digests == [hashlib.sha256(entry.data or b"").hexdigest() for entry in two]
    assert len(set(digests)) == 3
    assert [entry.data for entry in read(tmp_path / "a.olm", 1)] == [entry.data for entry in one[1:]]


def test_several_accounts_have_folders_of_their_own(tmp_path: Path) -> None:
    files = {f"Accounts/{name}/com.microsoft.__Messages/Inbox/message_1.xml": email(1) for name in ("ann", "bob")}
    assert [entry.folder for entry in read(write_olm(tmp_path / "two.olm", dict(files)))] == [
        ("ann", "Inbox"),
        ("bob", "Inbox"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><emails><email>&a;</email></emails>', "document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><emails/>', "document type"),
        ("<emails><email>", "can't be read"),
        ("<emails></emails>", "0 messages in one file"),
        ("<a>" * 500 + "</a>" * 500, "deep"),
        (b"\xff\xff\xff", "can't be read"),
        (b"<emails><email>" + b"x" * (70 << 20) + b"</email></emails>", "64 MiB"),
    ],
    ids=["entities", "external", "torn", "empty", "deep", "no text", "bomb"],
)
def test_a_hostile_message_fails_alone(tmp_path: Path, content: str | bytes, said: str) -> None:
    files: dict[str, str | bytes] = {f"{MESSAGES}/A/message_1.xml": content, f"{MESSAGES}/B/message_2.xml": email(2)}
    bad, good = read(write_olm(tmp_path / "hostile.olm", files))
    assert said in bad.error
    assert good.data is not None


def test_a_missing_attachment_is_a_problem_and_names_leave_nothing(tmp_path: Path) -> None:
    gone = email(1, attachments=(("a.txt", "text/plain", "../../etc/passwd"),))
    (entry,) = read(write_olm(tmp_path / "gone.olm", {f"{MESSAGES}/A/message_1.xml": gone}))
    assert entry.data is not None
    assert "not in the archive" in entry.problems[0]
    assert b"root:" not in entry.data


def test_control_characters_do_not_lose_a_message(tmp_path: Path) -> None:
    (entry,) = read(write_olm(tmp_path / "odd.olm", {f"{MESSAGES}/A/message_1.xml": email(1, body="a\x0bb\x1fc")}))
    assert b"a b c" in (entry.data or b"")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and nothing else", None])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "no.olm"
    if content is None:
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("hello.txt", "no mail here")
    else:
        path.write_bytes(content)
    with pytest.raises(OutlookUnreadable):
        read(path)


def test_as_files_of_a_source(tmp_path: Path) -> None:
    """By name or by content, resumed in the middle, each message once."""
    sample(tmp_path / "mail.olm")
    (tmp_path / "mail.olm").rename(tmp_path / "renamed.zip")
    sample(tmp_path / "mail.olm")
    connector = FilesConnector(
        FilesSettings.model_validate({"paths": [str(tmp_path)], "mailbox": "ann@example.org"}), QuietContext()
    )
    (box,) = connector.mailboxes()
    found = [one for batch in connector.fetch(box, {}, lambda keys: set()) for one in batch.messages]
    connector.close()
    assert len(found) == 6
    assert {one.folder for one in found} == {
        f"{name}/{folder}" for name in ("mail", "renamed") for folder in ("Inbox", "Projects/2015")
    }
    assert len({one.provider_key for one in found}) == 6
