"""Mboxes of all variants, good and bad ones: nothing lost, nothing changed, nothing taken for a message that is none."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.files.mbox import Mbox
from connectors.files.open_file import OpenFile
from connectors.files.postmark import postmark_date
from connectors.files.survey import survey
from connectors.files.variants import VARIANTS
from tests.support import mailfiles
from tests.unit.connectors.files.reader import imported

POSTMARK = mailfiles.POSTMARK


def names(path: Path, data: bytes) -> tuple[str, list[bytes]]:
    """Its variant, and the messages as they were."""
    mailfiles.put(path / "in.mbox", data)
    with OpenFile(path / "in.mbox") as file:
        variant = survey(file)
        mbox = Mbox(file, variant)
        spans = list(mbox.spans())
        whole = [mbox.content(span) for span in spans]
        assert [b"".join(mbox.pieces(span)) for span in spans] == whole
        assert all(before.next == after.at for before, after in itertools.pairwise(spans)), "a byte that is nowhere"
        return variant.name, whole


QUOTES = b"From a\n>From b\n>>From c\n"


@pytest.mark.parametrize(
    ("variant", "body"), [("mboxrd", QUOTES), ("mboxo", b"From a\n\nFrom b\n"), ("mboxcl", b"From a\n"), ("mboxcl2", QUOTES)]
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_each_variant_is_found_out_and_undone(tmp_path: Path, variant: str, body: bytes, newline: bytes) -> None:
    mails = [mailfiles.message(number, body * 2, newline=newline) for number in range(5)]
    if variant.startswith("mboxcl"):
        mails = [mailfiles.with_length(data) for data in mails]
    found, whole = names(tmp_path, mailfiles.mbox(mails, variant))
    assert found == variant
    if variant == "mboxcl":  # its Content-Length counts the quotes
        mails = [
            data.replace(b"Content-Length: %d" % n, b"Content-Length: %d" % (n + 2)) for data in mails if (n := _length(data))
        ]
    assert whole == mails


def _length(data: bytes) -> int:
    return len(data) - mailfiles.body_of(data)


def test_from_lines_in_bodies_are_text(tmp_path: Path) -> None:
    bodies = (
        b"\nFrom the very beginning\nwe said so\n",
        b"From: nobody\n\nFrom Monday on, at 10:30, in 2020\nit rains\n",
        b"From 1999 to 2020\n\nFrom x Mon Jan  6 10:00:00 2020 no header follows\nbut text\n",
    )
    mails = [mailfiles.message(number, body) for number, body in enumerate(bodies)]
    data = b"".join(POSTMARK + mail + b"\n" for mail in mails)
    assert names(tmp_path, data) == ("mbox", mails)


def test_missing_blank_lines_before_postmarks(tmp_path: Path) -> None:
    mails = [mailfiles.message(number) for number in range(4)]
    assert names(tmp_path, b"".join(POSTMARK + mail for mail in mails))[1] == mails


def test_postmarks_of_many_programs(tmp_path: Path) -> None:
    lines = (
        b"From 1628424719502045299@xxx Tue Mar 19 09:13:51 +0000 2019\r\n",
        b"From - Mon Apr 01 10:00:00 2019\n",
        b"From MAILER-DAEMON Thu Sep 18 17:54:04 2008\n",
        b"From ann@example.org  Thu, 21 Mar 2019 09:13:51 +0100\n",
        b'From "a b"@example.org Thu Mar 21 09:13 CET 2019 remote from host\n',
    )
    mails = [mailfiles.message(number) for number in range(len(lines))]
    data = b"".join(line + mail + b"\n" for line, mail in zip(lines, mails, strict=True))
    assert names(tmp_path, data)[1] == mails


def test_postmarks_without_a_date_if_the_first_has_none(tmp_path: Path) -> None:
    mails = [mailfiles.message(number) for number in range(3)]
    assert names(tmp_path, b"".join(b"From ann@example.org\n" + mail + b"\n" for mail in mails))[1] == mails


def test_a_wrong_content_length_is_not_believed(tmp_path: Path) -> None:
    mails = [mailfiles.message(number, b"text\n" * 30, more=b"Content-Length: %d\n" % number) for number in (7, 10**9, 0, 12)]
    assert names(tmp_path, b"".join(POSTMARK + mail + b"\n" for mail in mails))[1] == mails


def test_a_right_content_length_leads_over_a_whole_mbox_in_a_body(tmp_path: Path) -> None:
    inner = mailfiles.mbox([mailfiles.message(8), mailfiles.message(9)], "none")
    mails = [mailfiles.with_length(mailfiles.message(number, inner)) for number in range(3)]
    assert names(tmp_path, mailfiles.mbox(mails, "mboxcl2")) == ("mboxcl2", mails)


def test_the_same_message_twice_is_two_copies(tmp_path: Path) -> None:
    one, other = mailfiles.message(1), mailfiles.message(2)
    got = imported(mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox([one, other, one, one])))
    assert got.data == [one, other, one, one]
    assert [message.provider_key.rpartition("\u241f")[2] for message in got.messages] == ["0", "0", "1", "2"]


def test_an_mbox_that_is_cut_off_is_named_and_in(tmp_path: Path) -> None:
    whole = mailfiles.message(2, b"--x\n\nhello\n--x--\n", more=b'Content-Type: multipart/mixed; boundary="x"\n')
    data = mailfiles.mbox([mailfiles.message(1), whole])[:-6]
    got = imported(mailfiles.put(tmp_path / "a.mbox", data))
    assert got.data == [mailfiles.message(1), whole[:-5]]
    assert list(got.reasons) == ["a.mbox"]
    assert "truncated" in got.reasons["a.mbox"]


class Counted(OpenFile):
    """Counts what is read of it."""

    total = 0

    def read(self, start: int, end: int) -> bytes:
        data = super().read(start, end)
        self.total += len(data)
        return data


@pytest.mark.parametrize(
    "body", [b"From nobody\n" * 400_000, b"\n\n" * 5_000_000, b"x" * 10_000_000 + b"\n", b">From x\n" * 1_200_000]
)
def test_a_file_is_read_once_whatever_is_in_it(tmp_path: Path, body: bytes) -> None:
    """Linear: no quadratic splitter, nor one that reads the file again for each message."""
    mails = [mailfiles.message(0, body), *(mailfiles.message(number, b"short\n" * 50) for number in range(1, 20_000))]
    path = mailfiles.put(tmp_path / "in.mbox", b"".join(POSTMARK + mail + b"\n" for mail in mails))
    with Counted(path) as file:
        assert sum(1 for _ in Mbox(file).spans()) == len(mails)
        assert file.total < 2.5 * file.size


def test_postmark_dates() -> None:
    at = datetime(2019, 3, 19, 9, 13, 51, tzinfo=UTC)
    assert postmark_date(b"From x@xxx Tue Mar 19 09:13:51 +0000 2019\r\n") == at
    assert postmark_date(b"From x@xxx Tue Mar 19 09:13:51 2019\n") == at
    assert postmark_date(b"From x@xxx Tue Mar 19 10:13:51 2019 +0100\n") == at
    assert postmark_date(b"From x@xxx Tue Feb 31 10:13:51 2019\n") is None
    assert postmark_date(b"From x\n") is None


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"From ", b">From ", b">>From x", b"From x Mon Jan  6 10:00:00 2020", b"", b"Subject: x", b"Content-Length: 3"]
        ),
        st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"")),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from([b"\n", b"\r\n"]))
def test_whatever_is_in_a_body_comes_back_from_mboxrd(tmp_path: Path, bodies: list[list[bytes]], newline: bytes) -> None:
    mails = [mailfiles.message(n, b"".join(line + b"\n" for line in body), newline=newline) for n, body in enumerate(bodies)]
    mails.append(mailfiles.message(99, b">>From so that it shows\n"))
    mailfiles.put(tmp_path / "in.mbox", mailfiles.mbox(mails, "mboxrd"))
    with OpenFile(tmp_path / "in.mbox") as file:
        mbox = Mbox(file, VARIANTS["mboxrd"])
        assert [mbox.content(span) for span in mbox.spans()] == mails


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(LINES.map(b"\n".join), st.just(POSTMARK), st.binary(max_size=60)), max_size=15))
def test_no_byte_of_any_file_is_lost(tmp_path: Path, pieces: list[bytes]) -> None:
    """Postmarks, messages and the empty lines between them are the file."""
    data = POSTMARK + b"Subject: x\n\n" + b"".join(pieces)
    mailfiles.put(tmp_path / "in.mbox", data)
    with OpenFile(tmp_path / "in.mbox") as file:
        spans = list(Mbox(file).spans())
    rebuilt = b"".join(data[span.at : span.start] + data[span.start : span.end] + data[span.end : span.next] for span in spans)
    assert rebuilt == data
    assert all(data[span.end : span.next].strip(b"\r\n") == b"" for span in spans)
