"""Large messages as files: what is left on disk, and which error is whose."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.base import SPOOL_BYTES
from connectors.errors import Unavailable
from connectors.spool import Spool

CHUNK = b"x" * (SPOOL_BYTES // 2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_small_messages_stay_in_memory_and_large_ones_go_to_a_file(folder: Path) -> None:
    spool = Spool("test")
    assert spool.receive(iter([CHUNK, CHUNK])) == CHUNK * 2
    assert list(folder.iterdir()) == []
    path = spool.receive(iter([CHUNK, CHUNK, b"y", b"z"]))
    assert isinstance(path, Path)
    assert path.read_bytes() == CHUNK * 2 + b"yz"
    spool.close()
    assert list(folder.iterdir()) == []


def test_a_connection_that_breaks_off_leaves_no_file_and_keeps_its_error(folder: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"the beginning"
        raise ConnectionResetError("by the server")

    with pytest.raises(ConnectionResetError):
        Spool("test").write(broken())
    assert list(folder.rglob("*.eml")) == []


def test_a_disk_that_can_not_be_written_is_unavailable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "nowhere"))
    with pytest.raises(Unavailable, match="can't be spooled"):
        Spool("test").write([b"x"])


def test_nothing_is_written_after_the_end(folder: Path) -> None:
    spool = Spool("test")
    spool.close()
    with pytest.raises(Unavailable, match="closed"):
        spool.write([b"x"])
    assert list(folder.iterdir()) == []


def test_each_chunk_is_progress(folder: Path) -> None:
    calls: list[None] = []
    Spool("test", lambda: calls.append(None)).write([b"a", b"b", b"c"])
    assert len(calls) == 3
