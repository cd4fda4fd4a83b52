"""The compaction that a worker runs: what was deleted leaves the packs, it stops in between, and it can be switched off."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from archiver.config import Settings, load_settings
from archiver.maintenance.checks import outcomes
from archiver.maintenance.compact import CompactionStopped, compact_on_schedule
from archiver.queue.jobs import CompactPacks, QueueName
from archiver.queue.queues import JobQueues
from archiver.retention.delete import delete_message
from archiver.supervisor.valkey import EmbeddedValkey
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import World

_MAIL = b"Subject: %d\r\n\r\n"


def _settings(tmp_path: Path, **variables: str) -> Settings:
    (tmp_path / "data").mkdir(exist_ok=True)
    return load_settings({"ARCHIVER_DATA": str(tmp_path / "data"), **variables}, tmp_path / "none")


def _fill(world: World) -> None:
    """Two packs of incompressible mail, all but one message of it deleted; nothing has touched them for long."""
    for number in range(2):
        messages = tuple(RawMessage(f"{number}-{one}", _MAIL % number + os.urandom(3000).hex().encode()) for one in range(5))
        world.open().store_batch(world.origin(), Batch(messages))
        world.archive.close()
    ids = [row[0] for row in world.rows("SELECT id FROM messages ORDER BY id")]
    world.open()
    for message_id in ids[1:]:
        delete_message(world.engine, world.archive, message_id, "over")
    world.archive.close()
    for path in world.folder.rglob("*"):
        os.utime(path, (time.time() - 86400,) * 2)
    world.open()


def test_deleted_mail_leaves_the_packs(world: World, tmp_path: Path) -> None:
    _fill(world)
    done = compact_on_schedule(_settings(tmp_path), world.engine, world.archive, lambda: False)
    assert done.packs_before > 0
    assert done.bytes_after < done.bytes_before / 2
    with world.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.COMPACT)
    assert outcome is not None
    assert not outcome.has_failed
    assert outcome.details["bytes_after"] == done.bytes_after


def test_it_stops_between_packs_and_for_want_of_space(world: World, tmp_path: Path) -> None:
    _fill(world)
    before = world.rows("SELECT id, size_bytes FROM packs ORDER BY id")
    with pytest.raises(CompactionStopped, match="the time is over"):
        compact_on_schedule(_settings(tmp_path), world.engine, world.archive, lambda: True)
    with pytest.raises(CompactionStopped, match="nearly full"):
        compact_on_schedule(_settings(tmp_path, DISK_MIN_FREE_BYTES="900T"), world.engine, world.archive, lambda: False)
    assert world.rows("SELECT id, size_bytes FROM packs ORDER BY id") == before
    with world.engine.connect() as connection:
        outcome = outcomes.load(connection, outcomes.COMPACT)
    assert outcome is not None
    assert outcome.has_failed


def test_never_removes_the_schedule(valkey: EmbeddedValkey) -> None:
    async def play() -> list[str]:
        async with JobQueues(valkey.url()) as queues:
            seen = []
            for schedule in ("1d", "never", "never", "30 2 * * *"):
                await queues.ensure_schedule(QueueName.INDEXING, CompactPacks(), schedule)
                found = await queues._queues[QueueName.INDEXING].getJobSchedulers(0, -1)
                seen.append(str(len([one for one in found if one])))
            return seen

    assert asyncio.run(play()) == ["1", "0", "0", "1"]
