"""Data folders of earlier releases: this one opens them, migrates them, and finds and verifies everything in them.

scripts/old-data-folder makes one; they are never made again.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import psycopg
import pytest

from archiver.db import schema
from archiver.extract import EXTRACTOR_VERSION
from archiver.indexing.rethread import THREAD_RULES
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.conftest import Archiver
from tests.support.waiting import eventually

FOLDERS = sorted((Path(__file__).parents[1] / "fixtures").glob("data-folder-*.tar.xz"))
MESSAGES = 20
_RULES = "SELECT version FROM thread_rules"
_OLD_TEXTS = f"SELECT count(*) FROM attachments WHERE extractor_version BETWEEN 1 AND {EXTRACTOR_VERSION - 1}"


def test_there_is_one_of_the_first_release() -> None:
    assert FOLDERS[0].name == "data-folder-0.1.0.tar.xz"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("packed", FOLDERS, ids=lambda path: path.name)
def test_an_old_data_folder_is_opened_migrated_searched_and_verified(tmp_path: Path, packed: Path) -> None:
    with tarfile.open(packed) as opened:
        opened.extractall(tmp_path, filter="data")
    archiver = Archiver(tmp_path / "data", SAMPLE_SOURCES="")
    before = {path.name: path.read_bytes() for path in (archiver.data / "packs").rglob("*") if path.is_file()}

    plan = archiver.command("migrate", "--plan", "--json")
    assert plan.returncode == 0, plan.stderr
    pending = list(json.loads(plan.stdout)["pending"])
    assert pending[0] == "0007"
    assert pending[-1] == max(path.name[1:5] for path in (schema._folder() / "versions").glob("m[0-9]*.py"))
    again = archiver.command("migrate", "--plan", "--json")
    assert again.stdout == plan.stdout, "it has changed nothing"

    try:
        archiver.start()
        assert json.loads(archiver.command("migrate", "--plan", "--json").stdout)["pending"] == {}
        eventually(lambda: found(archiver, "zebra") == MESSAGES, 180, "all mail in the index, which was not in the folder")
        assert found(archiver, "from:bob has:attachment") == 4
        eventually(lambda: found(archiver, "legs") == 4, 180, "the text of the attachments")
        eventually(lambda: value(archiver, _RULES) == THREAD_RULES, 180, "the workers apply the rules of conversations")
        eventually(lambda: value(archiver, _OLD_TEXTS) == 0, 180, "the workers read attachments with the new extractor")
        verified = archiver.command("verify", "--full", "--json", seconds=240)
        assert verified.returncode == 0, verified.stdout
        report = json.loads(verified.stdout)
        assert (report["healthy"], report["messages"]) == (True, MESSAGES)
        after = {path.name: path.read_bytes() for path in (archiver.data / "packs").rglob("*") if path.is_file()}
        assert all(after[name].startswith(data) for name, data in before.items()), "packs only grow"
    finally:
        archiver.clean_up()


def found(archiver: Archiver, words: str) -> int:
    done = archiver.command("search", words, "--json")
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["total"])


def value(archiver: Archiver, statement: str) -> int:
    with psycopg.connect(EmbeddedPostgres(DataFolder(archiver.data)).url()) as connection:
        (found,) = connection.execute(statement).fetchone() or (None,)
        return int(found)
