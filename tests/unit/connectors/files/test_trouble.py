"""Files that can't be read, are no mail, or change under our hands: named, and the rest is in."""

from __future__ import annotations

import os
from pathlib import Path

from connectors.base import MailboxRef
from connectors.files import ImportSettings
from tests.contract.subject import nothing
from tests.support import mailfiles
from tests.unit.connectors.files.reader import ADDRESS, connector, fetched, imported

GOOD = mailfiles.message(1)


def test_what_is_not_mail_is_listed_and_what_should_be_is_a_failure(tmp_path: Path) -> None:
    place = tmp_path / "in"
    mailfiles.put(place / "good.eml", GOOD)
    mailfiles.put(place / "picture.jpg", b"\xff\xd8\xff\xe0")
    mailfiles.put(place / "note.txt", b"hello\n")
    mailfiles.put(place / "noise.mbox", os.urandom(4000))
    mailfiles.put(place / "old.pst", b"!BDN....")
    mailfiles.put(place / "message_00001.xml", b'<?xml version="1.0"?><emails elementCount="1"><email><OPFMessageCopySubject>')
    os.mkfifo(place / "pipe")
    (place / "link.eml").symlink_to("good.eml")
    got = imported(place)
    assert got.data == [GOOD]
    assert got.rules == {
        "picture.jpg": "not mail: a JPEG picture",
        "note.txt": "not mail: a text that is no mail",
        "link.eml": "a link, which is not followed",
    }
    assert set(got.reasons) == {"noise.mbox", "old.pst", "message_00001.xml", "pipe"}
    assert got.reasons["pipe"] == "can't be read: not a regular file"


def test_a_file_that_was_named_is_a_failure_if_it_is_no_mail(tmp_path: Path) -> None:
    got = imported(mailfiles.put(tmp_path / "note.txt", b"hello\n"))
    assert got.reasons == {"note.txt": "not mail: a text that is no mail"}


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    mails = [mailfiles.message(number) for number in range(500)]
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox(mails))
    batches = connector(path, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing)
    first = next(batches)
    with path.open("ab") as file:
        file.write(mailfiles.mbox([mailfiles.message(1000)]))
    rest = list(batches)
    assert len(first.messages) + sum(len(batch.messages) for batch in rest) == 500
    (failed,) = [one for batch in rest for one in batch.failed]
    assert "changed while it was read" in failed.reason


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path) -> None:
    mails = [mailfiles.message(number, os.urandom(8000).hex().encode() + b"\n") for number in range(500)]
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox(mails))
    batches = connector(path, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing)
    next(batches)
    os.truncate(path, 10_000)
    failed = [one for batch in batches for one in batch.failed]
    assert [one.provider_key for one in failed] == ["a.mbox"]
    assert "shorter" in failed[0].reason


def test_a_file_that_changed_between_two_slices_begins_anew(tmp_path: Path) -> None:
    mails = [mailfiles.message(number) for number in range(500)]
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox(mails))
    state = dict(next(iter(connector(path, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing))).state)
    mailfiles.put(path, mailfiles.mbox([mailfiles.message(9999), *mails]))
    got = fetched(connector(path, scratch=tmp_path / "s"), state)
    assert got.data == [mailfiles.message(9999), *mails]


def test_resumes_inside_a_file_though_the_scratch_folder_is_gone(tmp_path: Path) -> None:
    mails = [mailfiles.message(number % 300) for number in range(500)]  # many of them twice
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox(mails))
    whole = fetched(connector(path, scratch=tmp_path / "s"))
    batches = connector(path, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing)
    first = next(batches)
    got = fetched(connector(path, scratch=tmp_path / "another"), dict(first.state))
    assert [one.provider_key for one in (*first.messages, *got.messages)] == [one.provider_key for one in whole.messages]


def test_a_second_import_of_the_same_files_gives_nothing(tmp_path: Path) -> None:
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox([mailfiles.message(number % 20) for number in range(50)]))
    first = fetched(connector(path, scratch=tmp_path / "s", model=ImportSettings))
    keys = {one.provider_key for one in first.messages}
    moved = path.rename(tmp_path / "a.mbox.tmp").rename(mailfiles.put(tmp_path / "elsewhere" / "a.mbox", b""))
    again = connector(moved, scratch=tmp_path / "s", number=1)
    assert fetched(again, first.state, lambda asked: keys & set(asked)).data == []


def test_keys_of_failures_can_be_asked_for_again(tmp_path: Path) -> None:
    bad = mailfiles.put(tmp_path / "in" / "bad.mbox", os.urandom(4000))
    opened = connector(tmp_path / "in", scratch=tmp_path / "s")
    (batch,) = opened.refetch(MailboxRef(ADDRESS), ["bad.mbox"])
    assert [one.reason for one in batch.failed] == ["not mail: binary data"]
    mailfiles.put(bad, mailfiles.mbox([GOOD]))
    (batch,) = opened.refetch(MailboxRef(ADDRESS), ["bad.mbox"])
    assert [one.provider_key for one in batch.skipped] == ["bad.mbox"]
