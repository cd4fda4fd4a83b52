"""A tenant whose mailboxes' states are larger together than one value of Postgres can be (256 MB of jsonb)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from archiver.supervisor.postgres import EmbeddedPostgres
from tests.acceptance.sync.world import World, new_world

MAILBOXES = 300
STATE_BYTES = 1 << 20
LARGEST_JSONB = 0x0FFFFFFF


@pytest.fixture
def world(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[World]:
    with new_world(tmp_path, postgres) as made:
        yield made


@pytest.mark.slow
def test_states_of_300_megabytes_finish_a_cycle(world: World) -> None:
    source = world.add(mailboxes=MAILBOXES, messages_per_mailbox=1)
    world.start_worker()
    first = world.sync(source, 50)
    assert (first.outcome, first.mailboxes, first.archived) == ("success", MAILBOXES, MAILBOXES)
    ballast = "sync_state || jsonb_build_object('ballast', repeat(left(md5(id::text), 8), :bytes / 8))"
    with world.engine.begin() as connection:
        connection.execute(text(f"UPDATE mailboxes SET sync_state = {ballast}"), {"bytes": STATE_BYTES})
    together = "SELECT sum(octet_length(sync_state::text)) FROM mailboxes"
    assert world.one(together) > LARGEST_JSONB
    world.edit(source, messages_per_mailbox=2)
    again = world.sync(source, 50)
    assert (again.outcome, again.mailboxes, again.archived) == ("success", MAILBOXES, MAILBOXES)
    assert world.one(together) > LARGEST_JSONB, "no state is lost"
    assert world.one("SELECT octet_length(sync_state::text) FROM ingestion_sources") < 10_000
    assert world.one("SELECT max(octet_length(t::text)) FROM sync_runs t") < 100_000
    world.assert_at_rest()
