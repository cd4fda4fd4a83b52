"""Archives and compressed files: hostile, damaged, and with names in any encoding."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.errors import Unavailable
from connectors.files import unpacking
from tests.contract.subject import QuietContext
from tests.support import mailfiles
from tests.unit.connectors.files.reader import imported

ONE, TWO = mailfiles.message(1), mailfiles.message(2)


def _everything_below(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in path.rglob("*")}


def test_names_that_lead_outside_stay_inside(tmp_path: Path) -> None:
    names = (
        "../../outside.eml",
        "/etc/outside.eml",
        "a/../../b.eml",
        "C:\\outside.eml",
        "..\\..\\c.eml",
        "x\0y.eml",
        "." * 300,
    )
    path = mailfiles.put(
        tmp_path / "in" / "evil.zip", mailfiles.zipped({name: mailfiles.message(n) for n, name in enumerate(names)})
    )
    tar = {name.replace("\0", ""): mailfiles.message(n + 50) for n, name in enumerate(names)}
    other = mailfiles.put(tmp_path / "in" / "evil.tar", mailfiles.tarred(tar))
    before = _everything_below(tmp_path)
    got = imported(path, tmp_path / "scratch")
    got_tar = imported(other, tmp_path / "scratch")
    assert sorted(got.data) == sorted(mailfiles.message(n) for n in range(len(names)))
    assert len(got_tar.data) == len(names)
    outside = {name for name in _everything_below(tmp_path) - before if not name.startswith("scratch")}
    assert outside == set()
    assert not [name for name in _everything_below(tmp_path / "scratch") if not name.startswith("files")]


def test_links_and_devices_are_named_and_not_made(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind, name in (
            (tarfile.SYMTYPE, "soft"),
            (tarfile.LNKTYPE, "hard"),
            (tarfile.CHRTYPE, "device"),
            (tarfile.FIFOTYPE, "pipe"),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        entry = tarfile.TarInfo("soft/one.eml")
        entry.size = len(ONE)
        archive.addfile(entry, io.BytesIO(ONE))
    got = imported(mailfiles.put(tmp_path / "a.tar", out.getvalue()))
    assert got.data == [ONE]
    assert len(got.reasons) == 4
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        link = zipfile.ZipInfo("link.eml")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    got = imported(mailfiles.put(tmp_path / "b.zip", zipped.getvalue()))
    assert got.data == []
    assert got.reasons == {"b.zip/link.eml": "a link, which is not followed"}


@pytest.mark.parametrize("end", ["zip", "gz", "zst", "xz"])
def test_bombs_are_refused(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "HARMLESS_BYTES", 1 << 20)
    data = POSTMARKED + bytes(16 << 20)
    bomb = mailfiles.zipped({"a.mbox": data}) if end == "zip" else mailfiles.COMPRESS[end](data)
    mailfiles.put(tmp_path / "in" / f"bomb.mbox.{end}", bomb)
    mailfiles.put(tmp_path / "in" / "good.eml", ONE)
    got = imported(tmp_path / "in")
    assert got.data == [ONE]
    assert "it may be a decompression bomb" in next(iter(got.reasons.values()))
    assert [one for one in (tmp_path / "scratch").rglob("*") if one.is_file()] == []


POSTMARKED = mailfiles.mbox([ONE])


def test_nothing_is_unpacked_onto_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DISK_MIN_FREE_BYTES says; and the archive is named, so that its upload stays."""
    path = mailfiles.put(tmp_path / "in" / "all.zip", mailfiles.zipped({"a.eml": ONE}))
    monkeypatch.setattr(QuietContext, "least_free_bytes", 1 << 60)
    got = imported(path.parent, scratch=tmp_path / "scratch")
    assert (got.data, list(got.reasons.values())) == ([], ["not enough free disk space to unpack it"])
    large = mailfiles.put(tmp_path / "large" / "a.eml", mailfiles.message(3, b"x" * 80 + b"\n" * (9 << 20)))
    with pytest.raises(Unavailable, match="the disk is nearly full"):
        imported(large.parent, scratch=tmp_path / "scratch")


def test_archives_in_archives_have_an_end(tmp_path: Path) -> None:
    data = mailfiles.zipped({"deep.eml": ONE})
    for _ in range(7):
        data = mailfiles.zipped({"next.zip": data, "one.eml": TWO})
    got = imported(mailfiles.put(tmp_path / "a.zip", data))
    assert set(got.data) == {TWO}
    assert list(got.reasons.values()) == ["an archive in 4 others: refused"]


@pytest.mark.parametrize("encoding", ["utf-8", "cp932", "gb18030", "cp437", "latin-1"])
def test_names_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    word = {"cp932": "日本語の件名", "gb18030": "中文邮件", "cp437": "Übersicht", "latin-1": "Éléphant"}.get(
        encoding, "Übersicht"
    )
    raw = word.encode(encoding)
    data = mailfiles.zipped({"A" * len(raw) + "/1.eml": ONE}).replace(b"A" * len(raw), raw)
    got = imported(mailfiles.put(tmp_path / "a.zip", data))
    assert got.data == [ONE]
    assert got.folders == {word} or encoding == "latin-1"  # by the standard it would be CP437


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    mailfiles.put(tmp_path / "in" / os.fsdecode(b"\xff\xfe.eml"), ONE)
    got = imported(tmp_path / "in")
    assert got.data == [ONE]
    assert got.messages[0].provider_key.startswith("\\xff\\xfe.eml\u241f")


@pytest.mark.parametrize("end", ["gz", "xz", "zst"])
def test_compressed_files_that_are_cut_off(tmp_path: Path, end: str) -> None:
    mails = [mailfiles.message(number, os.urandom(2000).hex().encode() + b"\n") for number in range(200)]
    data = mailfiles.COMPRESS[end](mailfiles.mbox(mails))
    got = imported(mailfiles.put(tmp_path / f"a.mbox.{end}", data[: len(data) * 3 // 4]))
    assert "truncated or damaged" in got.reasons[f"a.mbox.{end}"]
    assert len(got.data) > 20, "what came before the end is in"
    assert set(got.data[:-1]) <= set(mails)


def test_members_of_a_compressed_file_follow_each_other(tmp_path: Path) -> None:
    for end, compress in mailfiles.COMPRESS.items():
        data = b"".join(compress(mailfiles.mbox([mailfiles.message(number)])) for number in range(3))
        got = imported(mailfiles.put(tmp_path / f"a.mbox.{end}", data), tmp_path / "scratch")
        assert got.data == [mailfiles.message(number) for number in range(3)]
        assert got.failed == []


def test_damage_and_passwords_in_a_zip_are_named_one_by_one(tmp_path: Path) -> None:
    data = bytearray(mailfiles.zipped({f"{n}.eml": mailfiles.message(n, os.urandom(3000).hex().encode()) for n in range(5)}))
    at = data.find(b"2.eml")
    data[at + 500 : at + 520] = bytes(20)
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as file:
        locked = file.getinfo("4.eml")
    data[locked.header_offset + 6] |= 1
    central = data.rfind(b"4.eml")
    data[central - 46 + 8] |= 1
    got = imported(mailfiles.put(tmp_path / "a.zip", bytes(data)))
    assert len(got.data) == 3
    assert set(got.reasons) == {"a.zip/2.eml", "a.zip/4.eml"}
    assert "password" in got.reasons["a.zip/4.eml"]


def test_documents_are_no_archives_of_mail(tmp_path: Path) -> None:
    mailfiles.put(tmp_path / "in" / "a.docx", mailfiles.zipped({"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"}))
    got = imported(tmp_path / "in")
    assert got.rules == {"a.docx": "not mail: an Office document or a program"}
    assert got.failed == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["zip", "tar", "gz", "xz", "zst"]),
    st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=20)), max_size=5),
    st.integers(0, 5000),
)
def test_damaged_archives_end_in_messages_or_reasons(
    tmp_path: Path, end: str, damage: list[tuple[int, bytes]], cut: int
) -> None:
    files = {f"{n}.eml": mailfiles.message(n, bytes(range(200))) for n in range(8)}
    data = bytearray(_PACK[end](files))
    for at, bad in damage:
        place = at % len(data)
        data[place : place + len(bad)] = bad[: len(data) - place]
    path = mailfiles.put(tmp_path / f"a.{end}", bytes(data[: len(data) - cut % len(data)]))
    got = imported(path, tmp_path / "scratch")
    assert got.data or got.failed or got.skipped
    assert len(got.messages) <= 9


def _tarred_and_compressed(end: str, files: dict[str, bytes]) -> bytes:
    return mailfiles.COMPRESS[end](mailfiles.tarred(files))


_PACK: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "zip": mailfiles.zipped,
    "tar": mailfiles.tarred,
    **{end: partial(_tarred_and_compressed, end) for end in ("gz", "xz", "zst")},
}
