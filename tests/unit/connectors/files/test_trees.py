"""Trees as programs leave them: folders, flags and labels, and what changes between two looks."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.base import ChangeKind, MailboxRef
from connectors.errors import Unavailable
from connectors.files import FilesConnector, FilesSettings
from connectors.files.detect import FileKind, detect
from connectors.files.header import read_marks
from connectors.files.names import SEPARATOR, folder_of, maildir_folder
from tests.contract.subject import QuietContext, nothing
from tests.support import mailfiles
from tests.unit.connectors.files.reader import ADDRESS, connector, fetched, imported


def test_thunderbird_folders_and_flags(tmp_path: Path) -> None:
    local = tmp_path / "profile" / "Mail" / "Local Folders"
    read, deleted = b"X-Mozilla-Status: 0005\nX-Mozilla-Keys: $label1 work\n", b"X-Mozilla-Status: 0009\n"
    mailfiles.put(local / "Inbox", mailfiles.mbox([mailfiles.message(1, more=read), mailfiles.message(2, more=deleted)]))
    mailfiles.put(local / "Inbox.sbd" / "Büro.sbd" / "2020", mailfiles.mbox([mailfiles.message(3)]))
    mailfiles.put(local / "Inbox.msf", b'// <!-- <mdb:mork:z v="1.4"/> -->\n')
    mailfiles.put(local / "Sent", b"")
    got = imported(tmp_path / "profile")
    assert got.folders == {"Mail/Local Folders/Inbox", "Mail/Local Folders/Inbox/Büro/2020"}
    assert got.messages[0].flags == ("$label1", "\\Flagged", "\\Seen", "work")
    assert Counter(got.rules.values()) == Counter(
        {
            "not mail: an index of Thunderbird": 1,
            "not mail: empty": 1,
            "include_deleted: no (deleted in Thunderbird, and not yet compacted away)": 1,
        }
    )
    assert len(imported(tmp_path / "profile", tmp_path / "other", include_deleted=True).data) == 3


def test_takeout_labels(tmp_path: Path) -> None:
    fields = (
        b"X-GM-THRID: 1628415971694286313\nX-Gmail-Labels: Inbox,Important,Unread,takeout\n",
        b'X-Gmail-Labels: =?UTF-8?Q?1.Organiza=C4=8Dn=C3=AD,"3._Culture,_Hle?=\n =?UTF-8?Q?d=C3=A1n=C3=AD",Starred?=\n',
        b"X-Gmail-Labels: Spam,Opened\n",
    )
    mails = [mailfiles.message(number, more=field, newline=b"\r\n") for number, field in enumerate(fields)]
    path = mailfiles.put(tmp_path / "t" / "Takeout" / "Mail" / "All mail Including Spam and Trash.mbox", mailfiles.mbox(mails))
    got = imported(tmp_path / "t")
    assert got.data == mails
    assert got.folders == {"All mail Including Spam and Trash"}
    assert [one.labels for one in got.messages] == [
        ("Inbox", "Important", "Unread", "takeout"),
        ("1.Organizační", "3. Culture, Hledání", "Starred"),
        ("Spam", "Opened"),
    ]
    assert [one.flags for one in got.messages] == [(), ("\\Flagged", "\\Seen"), ("\\Seen",)]
    assert list(imported(path, tmp_path / "s2", include_spam=False).rules.values()) == ["include_spam: no"]


def test_maildir_folders_flags_and_dates(tmp_path: Path) -> None:
    box = tmp_path / "Maildir"
    mailfiles.maildir(box, [mailfiles.message(1)])
    for sub in ("cur", "new", "tmp"):
        (box / ".Gesendet.B&APw-ro" / sub).mkdir(parents=True)
    mailfiles.put(box / ".Gesendet.B&APw-ro" / "cur" / "1578304800.M1P1.host,S=9:2,FRS", b"no header at all\n")
    mailfiles.put(box / "tmp" / "1578304801.M1P1.host", mailfiles.message(9))
    got = imported(box)
    sent = next(one for one in got.messages if one.folder != "INBOX")
    assert sent.folder == "Gesendet/Büro"
    assert sent.flags == ("\\Seen", "\\Answered", "\\Flagged")
    assert sent.received_at == datetime(2020, 1, 6, 10, tzinfo=UTC)
    assert sent.provider_key.startswith(".Gesendet.B&APw-ro/1578304800.M1P1.host,S=9\u241f"), "flags are no part of the key"
    assert list(got.rules.values()) == ["not mail: not delivered yet (in the tmp of a Maildir)"]


def test_mh_and_emlx_flags(tmp_path: Path) -> None:
    mailfiles.mh(tmp_path / "mh" / "inbox", [mailfiles.message(number) for number in range(6)])
    flags = [one.flags for one in imported(tmp_path / "mh").messages]
    assert flags == [(), (), (), ("\\Seen",), ("\\Flagged", "\\Seen"), ("\\Seen",)]
    apple = tmp_path / "apple" / "INBOX.mbox" / "0A1B2C3D-0000-1111-2222-333344445555" / "Data" / "Messages"
    mailfiles.put(apple / "1.emlx", mailfiles.emlx(mailfiles.message(1), flags=1 | 1 << 4))
    mailfiles.put(apple / "2.emlx", mailfiles.emlx(mailfiles.message(2))[:60])
    mailfiles.put(apple / "3.partial.emlx", mailfiles.emlx(mailfiles.message(3)))
    got = imported(tmp_path / "apple")
    assert got.folders == {"INBOX"}
    assert got.data[0] == mailfiles.message(1)
    assert got.messages[0].flags == ("\\Seen", "\\Flagged")
    assert [reason.partition(":")[0] for reason in got.reasons.values()] == [
        "truncated",
        "Apple Mail keeps its attachments in other files",
    ]


@pytest.mark.parametrize(
    ("head", "name", "kind"),
    [
        (b"From: a@b\n\nhello", "1", FileKind.MESSAGE),
        (b"From a@b Mon Jan  6 10:00:00 2020\nSubject: x\n\n", "x.txt", FileKind.MBOX),
        (b"From all of us:\nthank you\n", "card.txt", FileKind.OTHER),
        (b"\xef\xbb\xbfSubject: x\n\n", "bom.eml", FileKind.MESSAGE),
        (b"just text", "odd.eml", FileKind.MESSAGE),
        (b"name: value\nother: value\n", "config.yaml", FileKind.OTHER),
        (b"12        \nSubject: x\n\nhi", "1.emlx", FileKind.EMLX),
        (bytes(range(256)) * 4, "x.mbox", FileKind.OTHER),
        (b"", "x", FileKind.EMPTY),
        (b"PK\x05\x06" + bytes(18), "x", FileKind.ZIP),
    ],
)
def test_content_says_what_a_file_is(head: bytes, name: str, kind: FileKind) -> None:
    found = detect(head, name)
    assert found.kind is kind
    assert found.is_broken == (name == "x.mbox")


def test_folder_names() -> None:
    assert folder_of(("Inbox.mbox.gz",), "r") == "Inbox"
    assert folder_of(("Mail", "Inbox.sbd", "a"), "r") == "Mail/Inbox/a"
    assert folder_of(("Old.mbox", "mbox"), "r") == "Old"
    assert folder_of((), "mails.zip") == "mails"
    assert maildir_folder((".a.b",)) == "a/b"
    assert maildir_folder((".a&b",)) == "a&b"


def test_rules_of_programs_that_write_rubbish() -> None:
    assert read_marks(b'X-Mozilla-Status: zz\nX-Gmail-Labels: "open\n').labels == ("open",)
    assert read_marks(b"X-Gmail-Labels: =?nonsense?Q?a?=,b\n").labels
    assert read_marks(b"Subject: x\n").flags == ()


def test_only_what_is_new_is_read_again(tmp_path: Path) -> None:
    """A folder that is looked at again and again: new mail, flags that change, a file that grows."""
    box = mailfiles.maildir(tmp_path / "Maildir", [mailfiles.message(number) for number in range(10)])
    grown = mailfiles.put(tmp_path / "more" / "a.mbox", mailfiles.mbox([mailfiles.message(50)]))
    paths, scratch = (box, tmp_path / "more"), tmp_path / "scratch"
    first = fetched(connector(*paths, scratch=scratch, model=FilesSettings))
    keys = {one.provider_key for one in first.messages}
    assert len(keys) == 11

    def again() -> tuple[list[bytes], list[tuple[str, ...] | None]]:
        data: list[bytes | None] = []
        flags: list[tuple[str, ...] | None] = []
        opened = connector(*paths, scratch=scratch, model=FilesSettings)
        for batch in opened.fetch(MailboxRef(ADDRESS), first.state, lambda asked: keys & set(asked)):
            data += [one.data for one in batch.messages]
            flags += [one.flags for one in batch.changes if one.kind is ChangeKind.RELABELLED and one.flags == ("\\Answered",)]
            first.state.update(batch.state)
            keys.update(one.provider_key for one in batch.messages)
        return [one for one in data if one is not None], flags

    assert again() == ([], [])
    os.utime(box / "cur")  # nothing that matters
    mailfiles.put(box / "new" / "1600000000.M1P1.host", mailfiles.message(90))
    seen = next((box / "cur").iterdir())
    seen.rename(seen.with_name(seen.name.partition(":")[0] + ":2,R"))
    with grown.open("ab") as file:
        file.write(mailfiles.mbox([mailfiles.message(91)]))
    data, flags = again()
    assert sorted(data) == [mailfiles.message(90), mailfiles.message(91)]
    assert flags == [("\\Answered",)]
    assert again()[0] == []


def test_files_that_are_named_one_by_one(tmp_path: Path) -> None:
    """One entry of state for all of them, however many a shell makes of `*.eml`."""
    mailfiles.eml_folder(tmp_path / "old", [mailfiles.message(number) for number in range(30)])
    mailfiles.put(tmp_path / "old" / "Sent.mbox", mailfiles.mbox([mailfiles.message(50)]))
    mailfiles.put(
        tmp_path / "old" / "more.zip", mailfiles.zipped({"a.eml": mailfiles.message(51), "b/c.eml": mailfiles.message(52)})
    )
    got = fetched(connector(*sorted((tmp_path / "old").iterdir()), scratch=tmp_path / "s"))
    assert len(got.data) == 33
    assert got.folders == {"old", "Sent", "more", "b"}
    assert len([key for key in got.state if "/:" in key]) == 1


def test_places_of_an_earlier_import_are_forgotten(tmp_path: Path) -> None:
    first = fetched(
        connector(mailfiles.put(tmp_path / "a" / "a.mbox", mailfiles.mbox([mailfiles.message(1)])), scratch=tmp_path)
    )
    other = mailfiles.put(tmp_path / "b" / "b.mbox", mailfiles.mbox([mailfiles.message(2)]))
    again = fetched(connector(other, scratch=tmp_path, number=1), first.state)
    assert again.data == [mailfiles.message(2)]
    assert sum(value is not None for value in again.state.values()) == len(first.state)


def test_a_tree_that_is_not_there_any_more_is_unavailable(tmp_path: Path) -> None:
    opened = connector(tmp_path / "gone", scratch=tmp_path)
    with pytest.raises(Unavailable, match="gone can't be read: No such file"):
        opened.check()
    with pytest.raises(Unavailable):
        list(opened.fetch(MailboxRef(ADDRESS), {}, nothing))


@pytest.mark.parametrize(
    "values",
    [
        {"paths": "relative", "mailbox": ADDRESS},
        {"paths": "/x", "mailbox": "nobody"},
        {"paths": "/x", "mailbox": "a b@c"},
        {"paths": "[]", "mailbox": ADDRESS},
        {"paths": "/x", "mailbox": ADDRESS, "kind": "pst"},
    ],
)
def test_settings_that_make_no_sense(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        FilesSettings.model_validate(values)


class Looking:
    """A source of files that is looked at again and again, with what an archive knows of it."""

    def __init__(self, *paths: Path, scratch: Path) -> None:
        self.paths, self.scratch = paths, scratch
        self.state: dict[str, Any] = {}
        self.keys: set[str] = set()
        self.asked: list[str] = []

    def known(self, asked: Collection[str]) -> set[str]:
        self.asked += asked
        beginnings = {f"{key.partition(SEPARATOR)[0]}{SEPARATOR}" for key in self.keys}
        return (self.keys | beginnings) & set(asked)

    def round(self) -> list[bytes]:
        got = fetched(connector(*self.paths, scratch=self.scratch, model=FilesSettings), self.state, self.known)
        self.keys |= {one.provider_key for one in got.messages}
        self.state = {key: value for key, value in got.state.items() if value is not None}
        return sorted(got.data)

    def set_clock_back(self) -> None:
        """As if everything so far had been seen while the clock was a day ahead."""
        for directory in self.places():
            directory["since"] += 86_400 * 10**9
            directory["recent"] = hashlib.sha256().hexdigest()[:16]

    def a_day_later(self) -> None:
        for directory in self.places():
            directory["whole_at"] -= 86_400

    def places(self) -> list[dict[str, Any]]:
        return [value for value in self.state.values() if "since" in value]


def test_files_that_are_older_than_the_watermark_are_found_within_a_day(tmp_path: Path) -> None:
    box = mailfiles.maildir(tmp_path / "Maildir", [mailfiles.message(number) for number in range(5)])
    grown = mailfiles.put(tmp_path / "more" / "a.mbox", mailfiles.mbox([mailfiles.message(50)]))
    looking = Looking(box, tmp_path / "more", scratch=tmp_path / "scratch")
    assert len(looking.round()) == 6
    looking.set_clock_back()
    assert looking.round() == []
    mailfiles.put(box / "new" / "1600000000.M1P1.host", mailfiles.message(90))
    with grown.open("ab") as file:
        file.write(mailfiles.mbox([mailfiles.message(91)]))
    assert looking.round() == [], "by their change times they are old"
    looking.a_day_later()
    looking.asked.clear()
    assert looking.round() == [mailfiles.message(90), mailfiles.message(91)]
    hashed = [key for key in looking.asked if not key.endswith(SEPARATOR) and "a.mbox" not in key]
    assert len([key for key in hashed if SEPARATOR in key]) == 1, "of a Maildir only the names are compared"
    looking.a_day_later()
    looking.asked.clear()
    assert (looking.round(), looking.asked) == ([], []), "nothing is in doubt any more"


def test_a_folder_in_doubt_is_compared_once_a_day(tmp_path: Path) -> None:
    box = mailfiles.maildir(tmp_path / "Maildir", [mailfiles.message(number) for number in range(5)])
    looking = Looking(box, scratch=tmp_path / "scratch")
    looking.round()
    for number in (90, 91):
        looking.set_clock_back()
        mailfiles.put(box / "new" / f"16000000{number}.M1P1.host", mailfiles.message(number))
        looking.a_day_later()
        assert looking.round() == [mailfiles.message(number)]
        looking.set_clock_back()
        mailfiles.put(box / "new" / f"17000000{number}.M1P1.host", mailfiles.message(number + 100))
        assert looking.round() == [], "the next comparison is due tomorrow"
        looking.a_day_later()
        assert looking.round() == [mailfiles.message(number + 100)], "and the doubt is not forgotten until then"


def test_state_of_an_earlier_release_is_read_on(tmp_path: Path) -> None:
    box = mailfiles.maildir(tmp_path / "Maildir", [mailfiles.message(number) for number in range(5)])
    looking = Looking(box, scratch=tmp_path / "scratch")
    looking.round()
    for place in looking.places():
        for name in ("names", "next_names", "whole_at", "next_whole_at", "is_whole"):
            del place[name]
    looking.set_clock_back()
    mailfiles.put(box / "new" / "1600000000.M1P1.host", mailfiles.message(90))
    assert looking.round() == [mailfiles.message(90)], "its first round is one that compares"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("alice@my-company.com-Xy12_0.mbox", "alice@my-company.com"),
        ("Bob@example.org.mbox", "bob@example.org"),
        ("carol@example.org-a-b.mbox", "carol@example.org"),
    ],
)
def test_the_account_in_a_file_name_is_the_mailbox(tmp_path: Path, name: str, address: str) -> None:
    (tmp_path / name).write_bytes(b"From a@example.org Mon Jan  2 03:04:05 2023\nFrom: a@example.org\nSubject: x\n\nbody\n")
    settings = FilesSettings.model_validate({"paths": [tmp_path], "mailbox": "{folder}"})
    opened = FilesConnector(settings, QuietContext(tmp_path / "scratch"))
    assert [box.address for box in opened.mailboxes()] == [address]
    opened.close()
