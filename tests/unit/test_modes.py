"""The data folder is closed to others, and nothing else is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.modes import close_to_others, open_to_others


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    made.prepare()
    made.create_run()
    return made


def test_what_is_open_is_found_and_closed(folder: DataFolder) -> None:
    packs, deep = folder.path / "packs", folder.search / "indexes" / "a"
    for path in (packs, deep):
        path.mkdir(parents=True)
    files = {packs / "sealed.pack": 0o444, packs / "open.pack": 0o664, deep / "segment": 0o755}
    for path, given in files.items():
        path.write_bytes(b"")
        path.chmod(given)
    for path in (folder.path, folder.search, deep, packs):
        path.chmod(0o755)
    assert {path.name for path in open_to_others(folder)} >= {"data", "search", "a", "packs", *(path.name for path in files)}
    assert close_to_others(folder) == []
    assert list(open_to_others(folder)) == []
    assert [mode(path) for path in files] == [0o400, 0o600, 0o600]
    assert mode(deep) == 0o700
    assert mode(folder.path) == (0o710 if os.geteuid() == 0 else 0o700)


def test_what_is_not_ours_stays_as_it_is(folder: DataFolder, tmp_path: Path) -> None:
    """ARCHIVER_DATA may be any folder, links lead elsewhere, and PostgreSQL closes its own files."""
    letter, elsewhere = folder.path / "letters" / "letter.txt", tmp_path / "elsewhere"
    letter.parent.mkdir(mode=0o755)
    letter.write_text("mine")
    elsewhere.mkdir(mode=0o755)
    (folder.path / "packs").symlink_to(elsewhere)
    folder.postgres.mkdir(mode=0o700)
    (folder.postgres / "PG_VERSION").write_text("18")
    (folder.postgres / "PG_VERSION").chmod(0o644)
    before = [mode(path) for path in (letter, letter.parent, elsewhere, folder.postgres / "PG_VERSION")]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.run / "s"))
        close_to_others(folder)
        assert mode(folder.run / "s") & 0o077 == 0 or mode(folder.run) & 0o007 == 0
    assert [mode(path) for path in (letter, letter.parent, elsewhere, folder.postgres / "PG_VERSION")] == before
