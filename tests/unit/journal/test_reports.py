"""Journal reports are taken apart without changing a byte of the mail inside."""

from __future__ import annotations

import pytest

from archiver.journal.received import inner_ranges
from archiver.mail.formats.journal_reports import RecordedRecipient, read_journal_report
from tests.support.journal_reports import LINES, ORIGINAL, report

AWKWARD = (
    ORIGINAL,
    b"\r\n",
    b"no header, bare\nline feeds\rand returns\x00\xff",
    b'Content-Type: multipart/mixed; boundary="_b_=1x"\r\n\r\n--_b_=1x\r\n\r\nnested\r\n--_b_=1x--\r\n',
    b"Subject: ends without a line end\r\n\r\nx --_b_=1 in the middle of a line, and --_b_=1-- too",
    ORIGINAL + b"\r\n\r\n",
    b"a: b\r\n\r\n" + b"x" * 20_000 + b"\r\n.\r\n",
)


def _inner(raw: bytes) -> list[bytes]:
    found = read_journal_report(raw)
    return [raw[start:end] for start, end in inner_ranges(raw, found)] if found else []


@pytest.mark.parametrize("original", AWKWARD)
@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
def test_the_mail_inside_comes_out_byte_for_byte(original: bytes, line_end: bytes) -> None:
    assert _inner(report(original, line_end=line_end)) == [original]


@pytest.mark.parametrize(("encoding", "charset"), [("7bit", "us-ascii"), ("base64", "utf-8"), ("base64", "utf-16")])
def test_recipients_are_read_however_the_text_is_encoded(encoding: str, charset: str) -> None:
    found = read_journal_report(report(encoding=encoding, charset=charset))
    assert found is not None
    assert found.senders == ("alice@example.org",)
    assert found.recipients == (
        RecordedRecipient("to", "bob@example.org", "staff@example.org"),
        RecordedRecipient("cc", "outside@elsewhere.example"),
        RecordedRecipient("bcc", "carol@example.org"),
    )


def test_other_spellings() -> None:
    lines = "SENDER: <Alice@Example.org>\r\nOn-Behalf-Of: boss@example.org\r\nRecipient: SMTP:bob@example.org\r\n"
    found = read_journal_report(report(lines=lines, mark="x-wm-journal-report: journal"))
    assert found is not None
    assert found.senders == ("alice@example.org", "boss@example.org")
    assert found.recipients == (RecordedRecipient("recipient", "bob@example.org"),)


def test_a_second_readable_form_of_protected_mail_is_found() -> None:
    second = b"\r\n--_b_=1\r\nContent-Type: message/rfc822\r\n\r\nSubject: readable\r\n\r\ntext"
    assert _inner(report(after=second)) == [ORIGINAL, b"Subject: readable\r\n\r\ntext"]


def test_a_further_part_that_is_no_message_is_left_out() -> None:
    assert _inner(report(after=b"\r\n--_b_=1\r\nContent-Type: text/plain\r\n\r\nscanned")) == [ORIGINAL]


@pytest.mark.parametrize(
    "raw",
    [
        ORIGINAL,
        report(is_closed=False),
        report(lines="nothing here\r\n"),
        report().replace(b'boundary="_b_=1"', b""),
        report().replace(b"message/rfc822", b"application/octet-stream"),
        report().replace(b"Content-Type: message/rfc822", b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64"),
        report()[:300],
        b"X-MS-Journal-Report:\r\n",
        b"",
    ],
)
def test_what_is_no_whole_report_is_not_taken_apart(raw: bytes) -> None:
    assert _inner(raw) == []


def test_the_lines_of_the_test_are_those_of_the_report() -> None:
    assert LINES.encode() in report()
