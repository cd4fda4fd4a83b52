"""The documents name files, links and settings that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from archiver.cli.app import build
from archiver.config import Settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")) if path.is_file()
)
CURRENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
"""Without the history of releases, whose files may be gone."""

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w/.-])((?:archiver|connectors|workers|migrations|tests|benchmarks|scripts|docs)/[\w./-]*\w)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:`|^|\s|/bin/)archiver ([a-z][^`\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _prose(text: str) -> str:
    """Without code blocks, in which brackets are not links."""
    return _FENCED.sub("", text)


def _anchors(text: str) -> Iterator[str]:
    """As GitHub makes them from headings."""
    for heading in _HEADING.findall(_prose(text)):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def broken_links(path: Path) -> list[str]:
    found = []
    for link in _LINK.findall(_prose(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in set(_anchors(target.read_text()))):
            found.append(link)
    return found


def missing_paths(path: Path) -> list[str]:
    """Files and folders of the repository that are named and do not exist. `docs/decisions/NNNN-…` is a pattern, not a name."""
    named = {found for found in _PATH.findall(path.read_text()) if "NNNN" not in found}
    return sorted(name for name in named if not (ROOT / name).exists())


def wrong_commands(text: str) -> list[str]:
    """Commands and options that `archiver` does not have."""
    found, program = [], get_command(build())
    for line in _COMMAND.findall(text):
        command = program
        for word in line.split():
            command = getattr(command, "commands", {}).get(word, None) or command
            if not hasattr(command, "commands"):
                break
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        if command is program or not set(_OPTION.findall(line)) <= options:
            found.append(line)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path: Path) -> None:
    assert missing_paths(path) == []


def test_commands_and_options_exist() -> None:
    for path in DOCUMENTS:
        if path.name != "pack-format.md":  # names of derived keys begin with the same word
            assert wrong_commands(path.read_text()) == [], path.name


def test_the_checks_find_what_they_are_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](#three) [c](none.md) [d](https://e.org)\n`archiver/none.py` `archiver/config.py`\n"
    )
    assert broken_links(page) == ["#three", "none.md"]
    assert missing_paths(page) == ["archiver/none.py"]
    assert wrong_commands("`archiver serch x`, `archiver search --limit 3` and `archiver search --lmit 3`") == [
        "serch x",
        "search --lmit 3",
    ]


def test_the_path_of_one_email_is_short() -> None:
    files = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    rooms = {file.split("/")[1] if file.startswith("archiver/") else file.split("/")[0] for file in files}
    assert 20 <= len(files) == len(set(files)) <= 28
    assert len(rooms) <= 7


def test_the_layers_of_the_architecture_are_those_that_are_checked() -> None:
    text, configured = (ROOT / "docs" / "architecture.md").read_text(), (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^```\ncli\n.*?^```", text, re.MULTILINE | re.DOTALL)
    layers = re.search(r'^layers = \[\n    "cli",\n(.*?)^\]', configured, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert layers is not None
    assert block[0].splitlines()[2:-1] == re.findall(r'"(.+)"', layers[1])


def test_every_room_is_described() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "archiver").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"^\| `archiver/(\w+)` \|", text, re.MULTILINE))


def test_every_table_is_drawn() -> None:
    from archiver.db.tables import Base

    drawn = " ".join(_MERMAID.findall((ROOT / "docs" / "architecture.md").read_text()))
    assert {name for name in Base.metadata.tables if not re.search(rf"\b{name}\b", drawn)} == set()


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))


def test_settings_that_are_named_exist() -> None:
    known = {name.upper() for name in Settings.model_fields}
    rows = re.findall(r"^\| (`[A-Z][^|]*) \|", (ROOT / "docs" / "tuning.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row)}
    assert named
    assert named <= known


def test_scripts_parse() -> None:
    for path in sorted((ROOT / "scripts").iterdir()):
        if path.read_text().startswith("#!/usr/bin/env bash"):
            subprocess.run(["bash", "-n", path], check=True)
