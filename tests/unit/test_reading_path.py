"""A newcomer's way into the code: five files that explain the system, and the path of one email, as docs/architecture.md lists
them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
MAX_LINES, MAX_FILES, MAX_ROOMS = 600, 28, 7


def first_files() -> list[str]:
    found = re.search(r"^Start reading with (.*)$", ARCHITECTURE, re.MULTILINE)
    assert found is not None
    return re.findall(r"`([^`]+)`", found[1])


def spine() -> list[str]:
    """The second column of the numbered table."""
    return re.findall(r"^\| \d+ \| `([^`]+)` \|", ARCHITECTURE, re.MULTILINE)


def room_of(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "archiver" else parts[0]


def test_five_files_explain_the_system() -> None:
    assert len(first_files()) == 5
    assert sum(len((ROOT / path).read_text().splitlines()) for path in first_files()) <= MAX_LINES


def test_the_path_of_an_email_is_short() -> None:
    assert len(spine()) <= MAX_FILES
    assert [path for path in spine() if not (ROOT / path).is_file()] == []
    assert len({room_of(path) for path in spine()}) <= MAX_ROOMS, sorted({room_of(path) for path in spine()})


def test_consecutive_files_of_a_room_know_each_other() -> None:
    """The table is a path, not a list: within a room, each file is named by one of the others."""
    paths = spine()
    for path in paths:
        module = path.removesuffix(".py").replace("/", ".")
        others = [other for other in paths if other != path]
        names = re.compile(
            rf"\b{re.escape(module)}\b|from {re.escape(module.rpartition('.')[0])} import [^\n]*\b{Path(path).stem}\b"
        )
        assert any(names.search((ROOT / other).read_text()) for other in others) or path in ENTRIES, path


# Reached by their name in a table (job → processor, kind → connector), or through a room that the table mentions in brackets.
ENTRIES = {
    "workers/processors/schedule_continuous_sync.py",
    "workers/processors/continuous_sync.py",
    "workers/processors/process_mailbox.py",
    "workers/processors/index_email_batch.py",
    "connectors/imap/connector.py",
    "archiver/sync/relay.py",
    "archiver/parsing/answers.py",
}
