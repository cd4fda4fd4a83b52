"""Whatever a message is, each export format gives it back."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archiver.db.ids import message_uuid
from archiver.exports.delivery import deliver_output
from archiver.exports.package_files import PackageFolder
from archiver.exports.packing import Collected, pack_volume, seal_last
from archiver.exports.selection import FLAT, UNLIMITED_BYTES, PackageOptions
from tests.support.awkward_mail import AWKWARD
from tests.unit.connectors.files.reader import imported

CORPUS = [path.read_bytes() for path in sorted((Path(__file__).parents[3] / "corpus").glob("*.eml"))]
LINES = st.one_of(
    st.sampled_from(
        [
            b"From ",
            b">From x",
            b">>From y",
            b"From a Mon Jan  6 10:00:00 2020",
            b"From -",
            b"",
            b"Subject: x",
            b"Content-Length: 3",
        ]
    ),
    st.binary(max_size=30),
)
GENERATED = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r", b""])), max_size=8).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


FILES = {"eml": "out.zip", "mbox": "out.mbox", "maildir": "out"}


def pack(files: PackageFolder, kind: str, mails: list[bytes], target: Path) -> None:
    """With a manifest that says nothing: each format alone gives back what was put in."""
    files.create()
    files.mail(0).write_bytes(b"".join(mails))
    files.details(0).write_bytes(b"".join(orjson.dumps(entry(data)) + b"\n" for data in mails))
    collected = Collected(files, len(mails), 1)
    options = PackageOptions(kind, FLAT, UNLIMITED_BYTES)
    pack_volume(collected, options, 1, range(len(mails)), lambda _, __: None, lambda _: None)
    for path in (files.manifest, files.signature, files.public_key):
        path.write_bytes(b"{}\n")
    seal_last(files, 1)
    deliver_output(files, kind, target)


def entry(data: bytes) -> dict[str, Any]:
    digest = sha256(data)
    known = {"id": str(message_uuid(digest.digest())), "sha256": digest.hexdigest(), "bytes": len(data)}
    return {**known, "date": "2020-01-06T10:00:00+00:00", "from": "ann@example.org", "subject": "a subject", "copies": []}


def come_back(kind: str, mails: list[bytes]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        target = folder / FILES[kind]
        pack(PackageFolder(folder / "package"), kind, mails, target)
        got = imported(target, folder / "scratch")
        assert got.reasons == {}
        assert Counter(got.data) == Counter(mails)


@pytest.mark.parametrize("kind", FILES)
def test_all_together(kind: str) -> None:
    come_back(kind, list(dict.fromkeys([*AWKWARD, *CORPUS])))


@pytest.mark.parametrize("number", range(len(AWKWARD)))
@pytest.mark.parametrize("kind", FILES)
def test_each_alone(kind: str, number: int) -> None:
    """Nothing around it says what kind of file it is."""
    come_back(kind, [AWKWARD[number]])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FILES)), st.lists(GENERATED | st.sampled_from(CORPUS), min_size=1, max_size=8, unique=True))
def test_whatever_they_are(kind: str, mails: list[bytes]) -> None:
    come_back(kind, mails)
