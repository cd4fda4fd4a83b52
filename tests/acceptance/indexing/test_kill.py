"""Indexing processes and the search server are killed at any moment: in the end index and Postgres agree."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from archiver.config import load_settings
from archiver.search.index import SearchServer
from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, eventually, new_world
from tests.support.search_at import SearchAt

_AT_REST = """
    SELECT NOT EXISTS (SELECT 1 FROM messages WHERE indexed_version < index_version OR search_state IN ('pending', 'body'))
       AND NOT EXISTS (SELECT 1 FROM outbox) AND NOT EXISTS (SELECT 1 FROM sync_sessions)"""


class Indexed:
    """A World with a search server and indexing workers that are started again when they are killed."""

    def __init__(self, world: World, search: SearchAt) -> None:
        self.world, self.search = world, search
        self.server = SearchServer(load_settings(world.environment, Path("none")))
        self.indexing = [world.start_worker("indexing")]
        world.start_worker("ingestion")

    def kill_worker(self) -> None:
        worker = self.indexing.pop(0)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.indexing.append(self.world.start_worker("indexing"))

    def kill_search(self) -> None:
        self.search.kill()
        self.search.start()

    def versions(self) -> dict[str, Any]:
        return {found["id"]: found["version"] for page in self.server.fields("messages", ["id", "version"]) for found in page}

    def assert_agrees(self, seconds: float = 120) -> None:
        eventually(lambda: self.world.one(_AT_REST), seconds, "everything searchable")
        rows = self.world.rows("SELECT id, index_version FROM messages")
        assert self.versions() == {str(row.id): row.index_version for row in rows}
        assert self.world.rows("SELECT * FROM dead_letters WHERE kind <> 'message'") == []


@pytest.fixture
def indexed(tmp_path: Path, postgres: EmbeddedPostgres) -> Callable[..., AbstractContextManager[Indexed]]:
    @contextmanager
    def make(**variables: str) -> Iterator[Indexed]:
        search = SearchAt(tmp_path / "search").start()
        try:
            with new_world(tmp_path, postgres, **search.variables, **variables) as world:
                yield Indexed(world, search)
        finally:
            search.stop()

    return make


def _kill_while_mail_comes_in(indexed: Callable[..., Any], *, rounds: int, mailboxes: int, messages: int) -> None:
    chance = random.Random(rounds)
    with indexed(MEILI_INDEXING_BATCH="20", RECONCILE_FREQUENCY="5s") as at:
        source = at.world.add(mailboxes=mailboxes, messages_per_mailbox=messages)
        before = at.world.start_sync(source)
        eventually(lambda: at.world.one("SELECT count(*) FROM messages WHERE indexed_version > 0"), what="the first document")
        for _ in range(rounds):
            time.sleep(chance.uniform(0.2, 1.5))  # when it strikes is left to chance
            chance.choice([at.kill_worker, at.kill_search])()
        at.world.wait(source, before, 300)
        at.assert_agrees()


def test_killed_workers_and_servers_leave_no_difference(indexed: Callable[..., Any]) -> None:
    _kill_while_mail_comes_in(indexed, rounds=4, mailboxes=4, messages=60)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_killed_again_and_again(indexed: Callable[..., Any]) -> None:
    _kill_while_mail_comes_in(indexed, rounds=100, mailboxes=10, messages=2000)


def test_an_index_folder_deleted_while_everything_runs_is_noticed_and_filled_again(indexed: Callable[..., Any]) -> None:
    import shutil

    with indexed(RECONCILE_FREQUENCY="2s") as at:
        source = at.world.add(mailboxes=2, messages_per_mailbox=30)
        at.world.sync(source)
        at.assert_agrees()
        for folder in (at.search.folder / "indexes").iterdir():
            shutil.rmtree(folder)
        at.search.kill()
        at.search.start()
        eventually(lambda: len(at.versions()) == at.world.one("SELECT count(*) FROM messages"), what="filled again")
        at.assert_agrees()
