"""Real PST files: everything in them, from any item on, also when they are damaged or the reader is killed."""

from __future__ import annotations

import email
import email.policy
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path

import pytest

from archiver.outlook.reader import OutlookReader, open_outlook
from connectors.base import MailboxRef
from connectors.errors import Unavailable
from connectors.files import group
from connectors.outlook import PST, OutlookEntry, OutlookUnreadable
from tests.contract.subject import nothing
from tests.support.outlook_files import MsgSpec, Value, msg
from tests.unit.connectors.files.reader import ADDRESS, connector, fetched, imported


@pytest.fixture(scope="module")
def psts(shared_corpus: Path) -> list[Path]:
    return sorted((shared_corpus / "public" / "pst").rglob("*.pst"))


@pytest.fixture(scope="module")
def support(psts: list[Path]) -> Path:
    return next(path for path in psts if path.name == "support.pst")


def entries(path: Path, start: int = 0) -> list[OutlookEntry]:
    with path.open("rb") as file:
        opened = open_outlook(file.fileno(), PST)
        try:
            return list(opened.entries(start))
        finally:
            opened.close()


def test_every_file_is_read_completely_and_twice_gives_the_same_bytes(psts: list[Path], tmp_path: Path) -> None:
    assert psts
    for path in psts:
        first, second = entries(path), entries(path)
        assert first == second
        assert [one for one in first if (one.error and not one.is_left_out) or one.problems] == []
        assert [one.number for one in first] == list(range(len(first)))
        for one in first:
            assert one.is_left_out or b"\r\nX-Archiver-Converted-From: PST (" in (one.data or b"")


def test_continues_at_any_item(support: Path) -> None:
    whole = entries(support)
    assert len(whole) == 17
    assert all(entries(support, start) == whole[start:] for start in (0, 5, 6, 16, 17))


def test_folders_are_kept_and_each_batch_can_be_continued(
    support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "BATCH_MESSAGES", 4)
    whole = imported(support, tmp_path / "s")
    assert whole.folders == {"support/Drafts", "support/Sent Messages"}
    assert whole.state[f"files:{ADDRESS}"]["variants"] == {"support.pst": "pst: 17 items in 2 folders, 0 of them orphaned"}
    batches = list(connector(support, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing))
    assert len(batches) > 4
    before = 0
    for batch in batches:
        before += len(batch.messages)
        rest = fetched(connector(support, scratch=tmp_path / "other"), dict(batch.state))
        assert rest.data == whole.data[before:]


def test_a_second_import_finds_everything_known(support: Path, tmp_path: Path) -> None:
    first = imported(support, tmp_path / "s")
    keys = {one.provider_key for one in first.messages}
    again = fetched(connector(support, scratch=tmp_path / "s", number=1), first.state, lambda asked: keys & set(asked))
    assert again.data == []
    (batch,) = connector(support, scratch=tmp_path / "s").refetch(MailboxRef(ADDRESS), sorted(keys)[:3])
    assert {one.provider_key for one in batch.messages} == set(sorted(keys)[:3])


def test_settings_of_outlook_are_listed_as_no_mail(psts: list[Path], tmp_path: Path) -> None:
    got = imported(next(path for path in psts if path.name == "dist-list.pst"), tmp_path / "s")
    assert got.rules == {"dist-list.pst/Freebusy Data/3": "not mail: settings of Outlook (IPM.Microsoft.ScheduleData.FreeBusy)"}
    assert got.state[f"files:{ADDRESS}"]["found"] == len(got.messages) == 3


def test_closing_stops_the_reading(support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "BATCH_MESSAGES", 4)
    opened = connector(support, scratch=tmp_path / "s")
    batches = opened.fetch(MailboxRef(ADDRESS), {}, nothing)
    next(batches)
    opened.close()
    with pytest.raises(Unavailable):
        next(batches)


def test_a_file_of_unreadable_items_is_reported_in_batches(
    support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "BATCH_MESSAGES", 4)
    monkeypatch.setattr("archiver.outlook.reader._ITEMS_SECONDS", 0.0)
    batches = list(connector(support, scratch=tmp_path / "s").fetch(MailboxRef(ADDRESS), {}, nothing))
    assert max(len(batch.failed) for batch in batches) == 4
    assert sum(len(batch.failed) for batch in batches) == 17


def test_a_reader_that_is_killed_is_replaced(support: Path) -> None:
    whole = entries(support)
    with support.open("rb") as file:
        opened = OutlookReader(file.fileno(), PST, recover=False)
        got: list[OutlookEntry] = []
        for entry in opened.entries():
            got.append(entry)
            assert opened._child is not None
            opened._child.kill()
        opened.close()
    assert got == whole


def test_damaged_files_are_read_as_far_as_they_go(support: Path, tmp_path: Path) -> None:
    """Cut off, or with blocks of zeros: never a crash, and what can't be read is named."""
    whole = support.read_bytes()
    known = {one.data for one in entries(support)}
    read = 0
    for number, size in enumerate((600, 100_000, 700_000, len(whole) - 5000)):
        cut = tmp_path / f"cut{number}.pst"
        cut.write_bytes(whole[:size])
        read += _is_sound(cut, known)
    for number, at in enumerate((30_000, 200_000, 500_000, 900_000)):
        holed = tmp_path / f"holed{number}.pst"
        holed.write_bytes(whole[:at] + bytes(20_000) + whole[at + 20_000 :])
        read += _is_sound(holed, known)
    assert read > 0


def _is_sound(path: Path, known: set[bytes | None]) -> int:
    got = imported(path, path.parent / "scratch")
    whole = [data for data in got.data if data in known]
    assert got.reasons or len(whole) == len(known)
    return len(whole)


def test_a_large_item_is_spooled_in_pieces(tmp_path: Path) -> None:
    content = os.urandom(6_500_000)  # in base64, it does not fit into memory
    file: dict[int, Value] = {0x3705: 1, 0x3707: "large.bin", 0x3701: content}
    place = tmp_path / "in"
    place.mkdir()
    (place / "large.msg").write_bytes(msg(MsgSpec({0x001A: "IPM.Note", 0x0037: "Large", 0x1000: "text"}, files=[file])))
    (place / "broken.msg").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(3000))
    got = imported(place)
    (data,) = got.data
    (attached,) = _parse(data).iter_attachments()
    assert attached.get_payload(decode=True) == content
    assert got.messages[0].path is not None
    assert set(got.reasons) == {"broken.msg"}


def test_noise_behind_the_magic_is_refused_with_a_reason(tmp_path: Path) -> None:
    for number, noise in enumerate((b"", os.urandom(600), bytes(70_000), b"\xff" * 70_000)):
        path = tmp_path / f"{number}.pst"
        path.write_bytes(b"!BDN" + noise)
        with path.open("rb") as file, pytest.raises(OutlookUnreadable):
            open_outlook(file.fileno(), PST)


@pytest.mark.skipif(shutil.which("readpst") is None, reason="readpst (pst-utils) is not installed")
def test_readpst_finds_no_message_body_or_attachment_that_we_lack(psts: list[Path], tmp_path: Path) -> None:
    compared = 0
    for path in psts:
        folder = tmp_path / path.stem
        folder.mkdir()
        # Without -j 0, its parallel writers overwrite each other's files.
        subprocess.run(["readpst", "-j", "0", "-q", "-e", "-8", "-D", "-o", folder, path], check=True, capture_output=True)
        theirs = [_parse(one.read_bytes()) for one in sorted(folder.rglob("*.eml"))]
        ours = [_parse(one.data) for one in entries(path) if one.data]
        lacking = Counter(part for one in theirs for part in _contents(one)) - Counter(
            part for one in ours for part in _contents(one)
        )
        assert not lacking, path.name
        compared += len(theirs)
    assert compared > 20


def _parse(raw: bytes) -> EmailMessage:
    return email.message_from_bytes(raw, policy=email.policy.default)


def _contents(message: EmailMessage) -> Iterator[tuple[str, str]]:
    """Subject, texts and files; of texts, their words. RTF that holds the text and its own calendar files are readpst's."""
    yield "subject", str(message["Subject"] or "").strip()
    for part in message.walk():
        data = part.get_payload(decode=True)
        if part.is_multipart() or not isinstance(data, bytes) or not data.strip():
            continue
        name = str(part.get_filename() or "")
        if part.get_content_type() in ("text/plain", "text/html") and not name:
            text = data.decode(part.get_content_charset("utf-8"), "replace")
            yield part.get_content_type(), sha256("".join(text.split()).encode()).hexdigest()
        elif name and name != "rtf-body.rtf" and not part.get_content_type().startswith("text/calendar"):
            yield "file", sha256(data).hexdigest()
