"""Real mail through every format and back, byte for byte."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import mailfiles
from tests.unit.connectors.files.reader import imported

_HEADER_FROM = re.compile(rb"(?m)^>*From ")


@pytest.fixture(scope="module")
def mails(corpus: Path) -> list[bytes]:
    """What was found in single files; without a postmark, where one came along."""
    found = []
    for place in ("torture", "bounces", "real"):
        paths = sorted(path for path in (corpus / "public" / place).rglob("*") if path.is_file())
        for path in paths[:: 1 if place != "real" else max(1, len(paths) // 500)]:
            data = path.read_bytes()
            data = data.partition(b"\n")[2] if data.startswith(b"From ") else data
            if data.strip() and not data.startswith(b"GIF8"):
                found.append(data)
    assert len(found) > 500
    return found


def _ended(mails: list[bytes]) -> list[bytes]:
    """As an mbox can hold them: with a line end, and a header that does not look like a postmark."""
    ended = [data if data.endswith(b"\n") else data + b"\n" for data in mails]
    return [
        data
        for data in ended
        if not _HEADER_FROM.search(data[: mailfiles.body_of(data)]) and re.match(rb"[!-9;-~]+[ \t]*:", data)
    ]


def _mbox(variant: str) -> Callable[[Path, list[bytes]], list[bytes]]:
    def write(path: Path, mails: list[bytes]) -> list[bytes]:
        held = _ended(mails)
        if variant == "mboxcl2":
            held = [mailfiles.with_length(data) for data in held if b"ontent-Length:" not in data]
        mailfiles.put(path / "all.mbox", mailfiles.mbox(held, variant))
        return held

    return write


def _eml(path: Path, mails: list[bytes]) -> list[bytes]:
    mailfiles.eml_folder(path, mails)
    return mails


def _maildir(path: Path, mails: list[bytes]) -> list[bytes]:
    mailfiles.maildir(path, mails)
    return mails


def _emlx(path: Path, mails: list[bytes]) -> list[bytes]:
    held = _ended(mails)
    for number, data in enumerate(held):
        mailfiles.put(path / f"{number}.emlx", mailfiles.emlx(data))
    return held


def _zip(path: Path, mails: list[bytes]) -> list[bytes]:
    mailfiles.put(path / "all.zip", mailfiles.zipped({f"{number}.eml": data for number, data in enumerate(mails)}))
    return mails


def _tar(path: Path, mails: list[bytes]) -> list[bytes]:
    files = {f"x/{number}.eml": data for number, data in enumerate(mails)}
    mailfiles.put(path / "all.tar.zst", mailfiles.COMPRESS["zst"](mailfiles.tarred(files)))
    return mails


@pytest.mark.parametrize(
    "write",
    [_mbox("mboxrd"), _mbox("mboxcl2"), _eml, _maildir, _emlx, _zip, _tar],
    ids=["mboxrd", "mboxcl2", "eml", "maildir", "emlx", "zip", "tar.zst"],
)
def test_what_goes_in_comes_out(tmp_path: Path, mails: list[bytes], write: Callable[[Path, list[bytes]], list[bytes]]) -> None:
    held = write(tmp_path / "in", mails)
    got = imported(tmp_path / "in")
    assert got.reasons == {}
    assert Counter(got.data) == Counter(held)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("t-got-your-back/google-takeout/takeout.mbox", 39),
        ("t-got-your-back/vault-export-mbox/ubuntu_me@u.jaylee.us_0.mbox", 53),
        ("t-got-your-back/historic-public-mbox/mozillaes.mbox", 35),
        ("t-got-your-back/historic-public-mbox/sample.mbox", 15),
        ("sisimai/mbox-0", 37),
        ("t-mime4j/test-1/mbox.rlug", 5),
    ],
)
def test_real_mboxes(shared_corpus: Path, tmp_path: Path, name: str, count: int) -> None:
    got = imported(shared_corpus / "public" / "mbox" / name, tmp_path / "scratch")
    assert (len(got.data), got.failed) == (count, [])


def test_a_real_maildir(shared_corpus: Path, tmp_path: Path) -> None:
    got = imported(shared_corpus / "public" / "stores" / "stalwart" / "maildir", tmp_path / "scratch")
    assert sorted(got.data) == [b"a\n", b"b\n", b"c\n", b"d\n", b"e\n", b"f\n"]
    assert got.folders == {"INBOX", "My Folder", "My Folder/Nested Folder"}
