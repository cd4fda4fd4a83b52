"""Servers that several areas use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.valkey import EmbeddedValkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own, which it may kill."""
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    server = EmbeddedValkey(folder)
    server.prepare()
    with server.running():
        yield server
