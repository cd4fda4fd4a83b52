"""Years of policies, holds and arrivals, beside a plain model of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.retention import holds, policies, runs
from archiver.retention.holds import NewHold
from archiver.retention.policies import PolicyVersion
from connectors.base import Batch
from tests.integration.retention.model import Plan, add_period, base_time
from tests.integration.retention.policies_world import approve, checks, in_force, left, received, run
from tests.integration.store.conftest import World
from tests.integration.store.filled import id_of


@dataclass
class Held:
    hold_id: UUID
    numbers: frozenset[int]


@pytest.mark.parametrize(("first_year", "deleted"), [(2021, 5), pytest.param(2010, 20, marks=pytest.mark.chaos)])
def test_years_of_policies_holds_and_arrivals_against_a_plain_model(world: World, first_year: int, deleted: int) -> None:
    """Nothing is deleted early, nothing is kept past its end unless it is held, and every deletion has a receipt."""
    chance = random.Random(29)
    ingest = world.open()
    plan, active, arrived, number = Plan(), list[Held](), dict[int, datetime](), 0
    now = datetime(first_year, 1, 15, tzinfo=UTC)
    rules: list[PolicyVersion] = []
    while now < datetime(2025, 1, 1, tzinfo=UTC):
        for _ in range(chance.randint(0, 3)):
            number += 1
            at = now - timedelta(days=chance.randint(0, 400))
            ingest.store_batch(world.origin(), Batch((received(number, at),)))
            with world.engine.begin() as connection:
                values = {"at": now, "key": f"k{number}"}
                connection.execute(text("UPDATE message_copies SET created_at = :at WHERE provider_key = :key"), values)
            arrived[number] = at
            plan.arrive(number, at, now)
        step = chance.random()
        if step < 0.25:
            sender = chance.randint(0, 6)
            rule: dict[str, Any] = {
                "name": f"rule {len(rules)}",
                "query": chance.choice(["", f"from:sender{sender}@example.org", f'subject:"number {chance.randint(1, 9)}"']),
                "counted_from": chance.choice(["received", "archived"]),
                "from_year_end": chance.random() < 0.3,
            }
            period = f"{chance.randint(1, 36)}m"
            rule["keep_for" if chance.random() < 0.5 else "delete_after"] = period
            version = in_force(world, now, **rule)
            rules.append(version)
            plan.rules.append(version)
        elif step < 0.35 and plan.rules:
            gone = plan.rules.pop(chance.randrange(len(plan.rules)))
            approve(world, policies.retire(world.engine, LOCAL_OPERATOR, gone.policy_id, "over", now), now)
        elif step < 0.45 and plan.alive:
            chosen = frozenset(chance.sample(sorted(plan.alive), min(3, len(plan.alive))))
            ids = [id_of(one) for one in chosen]
            hold = holds.place(world.engine, LOCAL_OPERATOR, NewHold(f"hold {now:%Y-%m}", "x", message_ids=ids))
            active.append(Held(hold.id, chosen))
        elif step < 0.52 and active:
            over = active.pop(chance.randrange(len(active)))
            with world.engine.begin() as connection:
                holds.release(connection, LOCAL_OPERATOR, holds.load(connection, str(over.hold_id)), "x", second_person=False)
        plan.held = frozenset().union(*(one.numbers for one in active))
        plan.expire(now)
        run(world, now)
        assert left(world) == {id_of(one) for one in plan.alive}, f"{now:%Y-%m}"
        now += timedelta(days=chance.randint(20, 45))
    listed = {line for done in _all_runs(world) for line in done}
    assert len(listed) == number - len(plan.alive) > deleted


def _all_runs(world: World) -> Iterator[list[str]]:
    with world.engine.connect() as connection:
        keys = checks(connection)
        for done in runs.list_runs(connection, 10_000):
            lines = list(runs.deleted_units(connection, done))
            assert runs.faults(done, keys[done.key or ""], lines) == []
            yield lines


def test_the_model_itself(world: World) -> None:
    del world
    assert add_period(datetime(2024, 2, 29, tzinfo=UTC), "12m") == datetime(2025, 2, 28, tzinfo=UTC)
    assert base_time(datetime(2024, 2, 29, tzinfo=UTC), from_year_end=True) == datetime(2025, 1, 1, tzinfo=UTC)
