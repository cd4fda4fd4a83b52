"""Killing the worker in the middle of an import: it goes on inside the file, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.secrets import credentials_keyring
from archiver.sources import imports, runs
from archiver.sources import rows as source_rows
from archiver.sources.imports import Import
from archiver.sources.rows import Source
from archiver.sources.runs import Run
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support import mailfiles

MESSAGES = 3000
BODY = b"A line of text that is there to make it longer.\n" * 60


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres, INGESTION_WORKER_CONCURRENCY="2") as made:
        yield made


def begin(world: World, path: Path) -> tuple[Import, Source]:
    item = imports.begin(world.engine, credentials_keyring(world.settings), [path], "ann@example.org", {})
    with world.engine.connect() as connection:
        return item, source_rows.find(connection, item.source)


def wait(world: World, item: Import, seconds: float = 60) -> Run:
    return runs.wait_until_found(world.engine, lambda one: imports.ended_run(one, item.id), seconds, lambda _: None)


def held(world: World, source: Source) -> int:
    return int(
        world.one(
            "SELECT count(*) FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id WHERE b.source_id = :id",
            id=source.id,
        )
    )


@pytest.mark.parametrize("suffix", ["", pytest.param(".gz", marks=pytest.mark.chaos)])
def test_a_killed_worker_goes_on_inside_the_file(world: World, tmp_path: Path, suffix: str) -> None:
    mails = [mailfiles.message(number % (MESSAGES - 500), BODY) for number in range(MESSAGES)]  # 500 of them twice
    data = mailfiles.mbox(mails)
    path = mailfiles.put(tmp_path / f"all.mbox{suffix}", mailfiles.COMPRESS["gz"](data) if suffix else data)
    item, source = begin(world, path)
    for at in (600, 1200) if suffix else (900,):
        worker = world.start_worker()
        eventually(lambda at=at: held(world, source) >= at, what="progress")
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    assert held(world, source) < MESSAGES, "it was too quick to be killed"
    (state,) = (row[0] for row in world.rows("SELECT sync_state FROM mailboxes"))
    places = [value for key, value in state.items() if isinstance(value, dict) and value.get("at", 0) > 0]
    assert places, "no place inside the file was kept"
    world.start_worker()
    run = wait(world, item, 90)
    assert (run.outcome, run.archived, run.duplicates, run.missing) == ("success", MESSAGES, 0, 0)
    assert len(world.archive(source)) == MESSAGES
    assert len({sha256 for *_, sha256 in world.archive(source)}) == MESSAGES - 500
    world.assert_at_rest()
    assert [one for one in (world.settings.archiver_data / "scratch").rglob("*") if one.is_file()] == []

    again, _ = begin(world, path)
    run = wait(world, again)
    assert (run.outcome, run.archived, run.failed) == ("success", 0, 0)
    with world.engine.connect() as connection:
        assert imports.report(connection, again, run).known == MESSAGES


def test_an_import_whose_file_went_away_fails_once(world: World, tmp_path: Path) -> None:
    path = mailfiles.put(tmp_path / "a.mbox", mailfiles.mbox([mailfiles.message(1)]))
    item, source = begin(world, path)
    path.unlink()
    world.start_worker()
    run = wait(world, item)
    assert run.outcome == "failed"
    assert "a.mbox can't be read: No such file" in run.errors[0]["error"]
    world.ticked()
    assert world.load(source).next_due_at is None, "a file import is not tried again by itself"
    assert world.rows("SELECT 1 FROM outbox WHERE queue = 'ingestion'") == []
    mailfiles.put(path, mailfiles.mbox([mailfiles.message(1)]))
    assert wait(world, begin(world, path)[0]).outcome == "success"
