"""What a file is taken for, and why: decided on all of it, and said in the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.files.detect import FileKind, detect
from connectors.files.open_file import OpenFile
from connectors.files.survey import survey
from tests.support import mailfiles
from tests.unit.connectors.files.reader import ADDRESS, Got, imported

POSTMARK = mailfiles.POSTMARK
COMMIT = b"0123456789abcdef0123456789abcdef01234567"
PATCH = (
    b"From %s Mon Sep 17 00:00:00 2001\nFrom: Ann <ann@example.org>\nSubject: [PATCH] x\n\n---\n x | 1 +\n-- \n2.40\n\n"
    % COMMIT
)


def read(tmp_path: Path, data: bytes, name: str = "in.mbox") -> Got:
    return imported(mailfiles.put(tmp_path / name, data), tmp_path / "scratch")


def said(got: Got) -> str:
    (text,) = got.state[f"files:{ADDRESS}"]["variants"].values()
    return str(text)


def joined(mails: list[bytes], postmark: bytes = POSTMARK, blank: bytes = b"\n") -> bytes:
    return b"".join(postmark + mail + blank for mail in mails)


def test_what_decides_may_come_late_in_the_file(tmp_path: Path) -> None:
    mails = [mailfiles.message(number, b"text of no importance\n" * 5000) for number in range(100)]
    mails.append(mailfiles.message(100, b"From here\n>From there\n>>From far\n"))
    data = mailfiles.mbox(mails, "mboxrd")
    assert len(data) > (8 << 20)
    got = read(tmp_path, data)
    assert got.data == mails
    assert said(got).startswith("mboxrd: `>>From ` occurs, first at byte 1")


@pytest.mark.parametrize("shift", range(-9, 1))
def test_a_large_message_is_surveyed_to_its_end(tmp_path: Path, shift: int) -> None:
    """Wherever the pieces in which it is read end."""
    start = len(POSTMARK) + len(mailfiles.message(1))
    filler = (4 << 20) - start + len(POSTMARK) + shift
    body = b"x" * (filler - 1) + b"\n>>From here\n" + b"y" * 100 + b"\n"
    path = mailfiles.put(tmp_path / "in.mbox", POSTMARK + mailfiles.message(1, body) + b"\n")
    with OpenFile(path) as file:
        assert survey(file).name == "mboxrd"


def test_each_decision_has_a_reason(tmp_path: Path) -> None:
    bare = [mailfiles.message(number, b"From here\n") for number in range(3)]
    quoted = [mailfiles.message(number, b"From here\n") for number in range(3)]
    assert said(read(tmp_path / "1", joined(bare))).startswith("mbox: 3 `From ` lines in messages are not quoted, 0 are")
    assert said(read(tmp_path / "2", mailfiles.mbox(quoted, "mboxo"))).startswith("mboxo: 3 lines begin with `>From `")
    measured = [mailfiles.with_length(mail) for mail in bare]
    assert said(read(tmp_path / "3", mailfiles.mbox(measured, "mboxcl2"))).startswith("mboxcl2: 3 of 3 messages have a Content")
    plain = [mailfiles.with_length(mailfiles.message(number)) for number in range(2)]
    assert said(read(tmp_path / "4", mailfiles.mbox(plain, "mboxcl2"))).startswith("mboxcl: 2 of 2 messages have a Content")


def test_a_decision_that_the_user_made_is_said_too(tmp_path: Path) -> None:
    path = mailfiles.put(tmp_path / "in.mbox", mailfiles.mbox([mailfiles.message(1)]))
    assert said(imported(path, tmp_path / "scratch", kind="mboxrd")) == "mboxrd: as requested"


@pytest.mark.parametrize("postmark", [b"From -\n", b"From - \r\n", b"From ann@example.org\n"])
def test_undated_postmarks_without_an_empty_line(tmp_path: Path, postmark: bytes) -> None:
    mails = [mailfiles.message(number, b"From nowhere\nno: field\nFrom bob@example.org\nnor: this\n") for number in range(4)]
    assert read(tmp_path, joined(mails, postmark, blank=b"")).data == mails


def test_a_dash_alone_is_a_postmark_among_dated_ones(tmp_path: Path) -> None:
    mails = [mailfiles.message(number) for number in range(3)]
    data = POSTMARK + mails[0] + b"From - \n" + mails[1] + b"\n" + POSTMARK + mails[2] + b"\n"
    assert read(tmp_path, data).data == mails


def test_spaces_before_the_colon_of_from(tmp_path: Path) -> None:
    """RFC 5322, section 4.5."""
    data = b"From  : ann@example.org\nSubject : old\nTo : bob@example.org\n\ntext\n"
    assert detect(data, "x.eml").kind is FileKind.MESSAGE
    assert read(tmp_path / "1", data, "x.eml").data == [data]
    mails = [b"Subject: %d\n%s" % (number, data) for number in range(3)]
    assert read(tmp_path / "2", joined(mails)).data == mails


def test_a_patch_in_a_body_is_no_message(tmp_path: Path) -> None:
    mails = [mailfiles.message(number, b"see below\n\n" + PATCH) for number in range(3)]
    got = read(tmp_path, joined(mails))
    assert got.data == mails


def test_a_file_of_patches_is_a_file_of_messages(tmp_path: Path) -> None:
    patches = [PATCH.partition(b"\n")[2].replace(b" x\n", b" %d\n" % number)[:-1] for number in range(3)]
    line = PATCH.partition(b"\n")[0] + b"\n"
    assert read(tmp_path, joined(patches, line)).data == patches


@pytest.mark.parametrize("length", [3, 10**9])
def test_a_wrong_content_length_is_not_truncation(tmp_path: Path, length: int) -> None:
    mails = [mailfiles.message(number, b"text\n" * 30, more=b"Content-Length: %d\n" % length) for number in range(2)]
    got = read(tmp_path, joined(mails))
    assert (got.data, got.reasons) == (mails, {})


def test_a_length_that_is_right_elsewhere_shows_truncation(tmp_path: Path) -> None:
    mails = [mailfiles.with_length(mailfiles.message(number, b"text\n" * 30)) for number in range(4)]
    got = read(tmp_path, mailfiles.mbox(mails, "mboxcl2")[:-51])
    assert len(got.data) == 4
    assert "truncated" in got.reasons["in.mbox"]


@pytest.mark.parametrize("blank", [b"\n", b"\r\n\r\n"])
def test_what_gmail_shows_as_the_original_begins_with_an_empty_line(tmp_path: Path, blank: bytes) -> None:
    mail = mailfiles.message(1)
    assert read(tmp_path, blank + mail, "original.eml").data == [mail]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("times", [1, 200_000])
def test_a_message_in_utf_16(tmp_path: Path, encoding: str, times: int) -> None:
    text = "From: Ann <ann@example.org>\r\nSubject: Grüße\r\n\r\n" + "Schöne Grüße aus 東京 😀\r\n" * times
    got = read(tmp_path, text.encode(encoding), "saved.eml")
    assert got.data == [text.encode()]
    assert got.state[f"files:{ADDRESS}"]["kinds"] == {"eml in UTF-16": 1}


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_batched_smtp(tmp_path: Path, newline: bytes) -> None:
    mails = [mailfiles.message(n, b"..two dots\n.one dot\nDATA\n\nMAIL FROM:<x>\n" * 9, newline=newline) for n in range(30)]
    mails.append(mailfiles.message(99, b"large\n" * 2_000_000, newline=newline))
    pieces = [b"EHLO example.org" + newline]
    for mail in mails:
        stuffed = (b"\n" + mail).replace(b"\n.", b"\n..")[1:]
        pieces += [b"MAIL FROM:<ann@example.org>", newline, b"RCPT TO:<bob@example.org>", newline, b"DATA", newline, stuffed]
        pieces += [b".", newline]
    got = read(tmp_path, b"".join([*pieces, b"QUIT", newline]), "batch.bsmtp")
    assert got.data == mails
    assert got.reasons == {}
    assert got.state[f"files:{ADDRESS}"]["kinds"] == {"bsmtp": 1}
    cut = read(tmp_path / "cut", b"".join(pieces)[:-40], "batch.bsmtp")
    assert len(cut.data) == len(mails)
    assert "truncated" in cut.reasons["batch.bsmtp"]
