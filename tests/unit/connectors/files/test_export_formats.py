"""Whatever a message is, each export format gives it back."""

from __future__ import annotations

import io
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archiver.db.ids import message_uuid
from archiver.reading.export_formats import FORMATS, ExportedMessage
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


def come_back(kind: str, mails: list[bytes]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        target = folder / {"zip": "out.zip", "mbox": "out.mbox", "maildir": "out"}[kind]
        out = FORMATS[kind](folder / "draft", target)
        for data in mails:
            digest = sha256(data).digest()
            sent_at = datetime(2020, 1, 6, 10, tzinfo=UTC)
            row = ExportedMessage(message_uuid(digest), digest, sent_at, "ann@example.org", "a subject", len(data))
            out.add(row, io.BytesIO(data))
        (folder / "lines").write_bytes(b"")
        out.finish(folder / "lines")
        got = imported(target, folder / "scratch")
        assert got.reasons == {}
        assert Counter(got.data) == Counter(mails)


@pytest.mark.parametrize("kind", FORMATS)
def test_all_together(kind: str) -> None:
    come_back(kind, list(dict.fromkeys([*AWKWARD, *CORPUS])))


@pytest.mark.parametrize("number", range(len(AWKWARD)))
@pytest.mark.parametrize("kind", FORMATS)
def test_each_alone(kind: str, number: int) -> None:
    """Nothing around it says what kind of file it is."""
    come_back(kind, [AWKWARD[number]])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FORMATS)), st.lists(GENERATED | st.sampled_from(CORPUS), min_size=1, max_size=8, unique=True))
def test_whatever_they_are(kind: str, mails: list[bytes]) -> None:
    come_back(kind, mails)
