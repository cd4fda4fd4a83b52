"""Policies: what they match, when they delete, what they keep, and who has to agree."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.errors import Conflict, UsageError
from archiver.evidence import signing
from archiver.maintenance.rebuild import rebuild
from archiver.maintenance.retention import executor
from archiver.maintenance.snapshot import save_config
from archiver.retention import holds, policies, runs, simulation
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.retention.holds import NewHold, OnHold
from archiver.retention.keeping import explain
from archiver.retention.policies import NewPolicy, PolicyVersion
from archiver.retention.runs import RetentionRun
from archiver.secrets import Keyring
from connectors.base import Batch, RawMessage
from tests.integration.retention.model import Plan, add_period, base_time
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.integration.store.test_care import id_of, messages_of
from tests.integration.store.test_deletion import MakeWorld
from tests.support.waiting import eventually

KEYRING = Keyring({"test": b"k" * 32})
SECOND_PERSON = replace(LOCAL_OPERATOR, name="second@example.org")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def run(world: World, now: datetime = NOW, *, batch: int = 5_000, limit: int = 1_000_000) -> RetentionRun | None:
    made = executor(world.engine, world.archive, KEYRING)
    return replace(made, clock=lambda: now, batch=batch).run(limit)


def propose(world: World, now: datetime = NOW, policy_id: UUID | None = None, **values: Any) -> PolicyVersion:
    new = NewPolicy(**{"name": "Rule", "reason": "because", **values})
    return policies.propose(world.engine, LOCAL_OPERATOR, new, policy_id, now)


def approve(world: World, version: PolicyVersion, now: datetime = NOW) -> PolicyVersion:
    simulated = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, version, now)
    with world.engine.begin() as connection:
        return policies.approve(connection, SECOND_PERSON, simulated, second_person=True, now=now)


def in_force(world: World, now: datetime = NOW, **values: Any) -> PolicyVersion:
    version = propose(world, now, **values)
    return version if version.approved_at else approve(world, version, now)


def checks(connection: Connection) -> dict[str, runs.IsSigned]:
    """By the id of a key, what checks its signatures."""
    return {key.id: partial(signing.is_signed, key.public_bytes) for key in signing.public_keys(connection)}


def received(number: int, at: datetime) -> RawMessage:
    return replace(messages_of(number)[0], received_at=at)


def left(world: World) -> set[UUID]:
    return {row[0] for row in world.rows("SELECT DISTINCT message_id FROM message_copies WHERE deleted_at IS NULL")}


def stored(world: World, *numbers: int, mailbox: UUID = MAILBOX, years: float = 5) -> None:
    at = NOW - timedelta(days=365.25 * years)
    world.open().store_batch(world.origin(mailbox), Batch(tuple(received(number, at) for number in numbers)))


# what is deleted, and what is not


def test_without_a_policy_everything_is_kept(world: World) -> None:
    stored(world, 1, 2, years=100)
    assert run(world) is None
    assert left(world) == {id_of(1), id_of(2)}


def test_what_is_due_is_deleted_with_a_signed_receipt(world: World, new_world: MakeWorld) -> None:
    stored(world, 1, 8, 2)  # 1 and 8 are from sender1
    stored(world, 15, years=1)
    in_force(world, query="from:sender1@example.org", delete_after="2y")
    done = run(world)
    assert done is not None
    assert (done.copies, done.messages, done.held, done.error) == (2, 2, 0, None)
    assert left(world) == {id_of(2), id_of(15)}
    with world.engine.connect() as connection:
        keys = checks(connection)
        lines = list(runs.deleted_units(connection, done))
    assert len(lines) == 2
    assert runs.faults(done, keys[done.key or ""], lines) == []
    assert runs.faults(replace(done, receipt=(done.receipt or "").replace("2", "3", 1)), keys[done.key or ""], lines)
    assert runs.faults(done, keys[done.key or ""], lines[1:])
    assert run(world) is None, "nothing more is due, and nothing is said about it"
    save_config(world.engine, world.archive)
    world.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert left(rebuilt) == {id_of(2), id_of(15)}
    with rebuilt.engine.connect() as connection:
        (kept,) = runs.list_runs(connection)
        assert runs.faults(kept, checks(connection)[kept.key or ""], list(runs.deleted_units(connection, kept))) == []
        assert [version.delete_after for version in policies.in_force(connection)] == ["2y"]


def test_a_policy_about_a_mailbox_deletes_only_there(world: World) -> None:
    stored(world, 1)
    stored(world, 1, mailbox=SECOND)
    in_force(world, query="mailbox:bob@example.org", delete_after="1y")
    done = run(world)
    assert done is not None
    assert (done.copies, done.messages) == (1, 0)
    assert world.rows("SELECT mailbox_id FROM message_copies WHERE deleted_at IS NULL") == [(MAILBOX,)]


@pytest.mark.parametrize("query", ['"with the number 1"', 'subject:"number 1"', "from:1 subject:invoice -subject:2"])
def test_words_are_read_from_the_mail_itself(world: World, query: str) -> None:
    stored(world, 1, 2, 3)
    in_force(world, query=query, delete_after="1y")
    done = run(world)
    assert done is not None
    assert left(world) >= {id_of(2), id_of(3)}
    assert id_of(1) not in left(world) or query.startswith("from")


def test_the_longest_keep_wins_and_protects_against_everything_else(world: World) -> None:
    stored(world, 1, 2)
    in_force(world, name="Clean up", delete_after="1y")
    in_force(world, name="Finance", query='"with the number 1"', keep_for="10y")
    in_force(world, name="Shorter", query="from:sender1@example.org", keep_for="2y")
    done = run(world)
    assert done is not None
    assert left(world) == {id_of(1)}
    with pytest.raises(OnHold, match=r"kept until 2031-\d\d-\d\d by Finance"):
        delete_message(world.engine, world.archive, id_of(1), "asked for")
    assert delete_mailbox_mail(world.engine, world.archive, MAILBOX, "asked for").held == 1
    with world.engine.connect() as connection:
        kept = {one.name: one for one in explain(connection, world.engine, id_of(1), None, NOW)}
    assert kept["Finance"].kept_until is not None
    assert kept["Clean up"].deleted_from is not None
    later = run(world, NOW + timedelta(days=6 * 366))
    assert later is not None
    assert left(world) == set()


def test_a_hold_wins_over_everything(world: World) -> None:
    stored(world, 1, 2)
    in_force(world, delete_after="1y")
    hold = holds.place(world.engine, LOCAL_OPERATOR, NewHold("Case Lamp", "x", query='"with the number 1"'))
    done = run(world)
    assert done is not None
    assert (done.copies, done.held) == (1, 1)
    assert left(world) == {id_of(1)}
    with world.engine.begin() as connection:
        holds.release(connection, LOCAL_OPERATOR, hold, "over", second_person=False)
    assert run(world) is not None
    assert left(world) == set()


def test_a_forged_date_neither_shortens_nor_prolongs(world: World) -> None:
    """mail(n) is dated March 2024."""
    ingest = world.open()
    ingest.store_batch(world.origin(), Batch((received(1, datetime(2024, 3, 2, tzinfo=UTC)),)))  # agrees
    ingest.store_batch(world.origin(), Batch((received(2, datetime(2026, 5, 1, tzinfo=UTC)),)))  # the server says later
    ingest.store_batch(world.origin(), Batch((received(3, datetime(2023, 1, 1, tzinfo=UTC)),)))  # earlier
    version = propose(world, counted_from="sent", delete_after="2y")
    figures = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, version, NOW).simulation
    assert figures is not None
    assert (figures["disputed_dates"], figures["date_only"], figures["due"]) == (2, 0, 2)
    approve(world, version)
    run(world)
    assert left(world) == {id_of(2)}


def test_the_end_of_the_year_counts_in_the_time_zone_of_the_policy(world: World) -> None:
    world.open().store_batch(world.origin(), Batch((received(1, datetime(2020, 12, 31, 23, 30, tzinfo=UTC)),)))
    in_force(world, delete_after="5y", from_year_end=True, zone="Europe/Berlin")  # 2021 there: until the end of 2026
    assert run(world, datetime(2026, 12, 31, 22, 59, tzinfo=UTC)) is None
    assert run(world, datetime(2026, 12, 31, 23, 1, tzinfo=UTC)) is not None


# versions, simulation, approval


def test_a_policy_that_deletes_needs_a_fresh_simulation_and_a_second_person(world: World) -> None:
    stored(world, 1)
    version = propose(world, delete_after="1y")
    assert version.is_open
    with world.engine.begin() as connection, pytest.raises(Conflict, match="simulate it first"):
        policies.approve(connection, SECOND_PERSON, version, second_person=True, now=NOW)
    version = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, version, NOW)
    with world.engine.begin() as connection, pytest.raises(Conflict, match="another administrator"):
        policies.approve(connection, LOCAL_OPERATOR, version, second_person=True, now=NOW)
    with world.engine.begin() as connection, pytest.raises(Conflict, match="simulate it first"):
        policies.approve(connection, SECOND_PERSON, version, second_person=True, now=NOW + timedelta(days=1, seconds=1))
    assert run(world) is None
    with world.engine.begin() as connection:
        policies.approve(connection, SECOND_PERSON, version, second_person=True, now=NOW)
    with world.engine.begin() as connection, pytest.raises(Conflict, match="already"):
        policies.reject(connection, SECOND_PERSON, version)
    assert run(world) is not None


def test_what_protects_less_needs_approval_and_what_protects_more_does_not(world: World) -> None:
    stored(world, 1)
    first = propose(world, name="Keep", keep_for="5y")
    assert first.approved_at is not None
    longer = propose(world, policy_id=first.policy_id, name="Keep", keep_for="10y")
    assert longer.approved_at is not None
    for weaker in ({"keep_for": "9y"}, {"query": "from:a@b.org"}, {"counted_from": "sent"}):
        assert propose(
            world, policy_id=first.policy_id, name="Keep", **dict[str, Any](weaker, keep_for=weaker.get("keep_for", "10y"))
        ).is_open
    assert policies.retire(world.engine, LOCAL_OPERATOR, first.policy_id, "no longer needed", NOW).is_open
    with world.engine.connect() as connection:
        assert [version.id for version in policies.in_force(connection)] == [longer.id]
        numbers = [version.number for version in policies.versions_of(connection, first.policy_id)]
    assert numbers == [6, 5, 4, 3, 2, 1], "nothing is edited in place"
    with pytest.raises(OnHold):
        delete_message(world.engine, world.archive, id_of(1), "asked for")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "needs a period"),
        ({"keep_for": "10"}, "expected a period"),
        ({"delete_after": "0d"}, "expected a period"),
        ({"keep_for": "10y", "delete_after": "9y"}, "can't delete after"),
        ({"keep_for": "1y", "query": "mailbox:nobody@nowhere"}, "no mailbox"),
        ({"keep_for": "1y", "query": "hold:x"}, "hold:"),
        ({"keep_for": "1y", "counted_from": "read"}, "expected one of"),
        ({"keep_for": "1y", "name": " "}, "needs a name"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(world: World, values: dict[str, Any], says: str) -> None:
    world.open()
    with pytest.raises(UsageError, match=says):
        propose(world, **values)


def test_a_policy_about_a_mailbox_that_is_gone_stops_every_deletion(world: World) -> None:
    stored(world, 1)
    in_force(world, name="Keep bob", query="-mailbox:bob@example.org", delete_after="1y")
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE mailboxes SET address = 'moved' WHERE id = :id"), {"id": SECOND})
    done = run(world)
    assert done is not None
    assert done.copies == 0
    assert "bob@example.org" in (done.error or "")
    assert left(world) == {id_of(1)}


def test_a_simulation_says_what_would_go_and_when(world: World) -> None:
    stored(world, 1, 2, 3)
    stored(world, 4, years=0.5)
    stored(world, 5, mailbox=SECOND)
    in_force(world, name="Keep", query="from:sender3@example.org", keep_for="8y")
    holds.place(world.engine, LOCAL_OPERATOR, NewHold("Case Lamp", "x", message_ids=[id_of(2)]))
    version = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, propose(world, delete_after="1y"), NOW)
    figures = version.simulation
    assert figures is not None
    assert (figures["messages"], figures["due"], figures["kept_longer"]) == (5, 3, 1)
    assert [row[:2] for row in figures["mailboxes"]] == [["alice@example.org", 2], ["bob@example.org", 1]]
    assert [row[:2] for row in figures["held"]] == [["Case Lamp", 1]]
    assert [row[:2] for row in figures["months"]] == [["2026-06", 3], ["2026-11", 1], ["2029-05", 1]]
    assert set(figures["samples"]) == {str(id_of(number)) for number in (1, 2, 5)}
    lines = "".join(simulation.as_csv(version)).splitlines()
    assert "due now,,3," in "".join(line + "\n" for line in lines)
    assert left(world) == {id_of(number) for number in (1, 2, 3, 4, 5)}


def test_a_table_for_a_spreadsheet_has_no_formulas(world: World) -> None:
    version = replace(propose_only(world), simulation={"senders": [["=cmd()", 1, 2]]})
    assert "'=cmd()" in "".join(simulation.as_csv(version))


def propose_only(world: World) -> PolicyVersion:
    world.open()
    return propose(world, delete_after="1y")


# runs that are disturbed


def test_a_run_is_bounded_and_goes_on_in_batches(world: World) -> None:
    stored(world, *range(1, 40))
    in_force(world, delete_after="1y")
    done = run(world, batch=5, limit=10)
    assert done is not None
    assert done.copies == 10
    again = run(world, batch=7)
    assert again is not None
    assert (again.copies, again.id != done.id) == (29, True)
    assert left(world) == set()


def test_two_runners_delete_once(world: World) -> None:
    stored(world, *range(1, 60))
    in_force(world, delete_after="1y")
    with ThreadPoolExecutor(2) as pool:
        done = [one for one in pool.map(lambda _: run(world, batch=5), range(2)) if one is not None]
    assert sum(one.copies for one in done) == 59
    assert world.value("SELECT count(*) FROM retention_runs WHERE finished_at IS NULL") == 0


def test_a_policy_that_changes_during_a_run_ends_it(world: World) -> None:
    stored(world, *range(1, 40))
    in_force(world, name="Clean up", delete_after="1y")
    steps = iter(range(1000))

    def change_once() -> bool:
        """Between two batches."""
        if next(steps) == 4:
            propose(world, name="Keep", query="-from:sender1@example.org", keep_for="10y")
        return False

    made = replace(executor(world.engine, world.archive, KEYRING), clock=lambda: NOW, batch=2)
    first = made.run(1_000, change_once)
    assert first is not None
    assert 0 < first.copies < 39
    with world.engine.connect() as connection:
        assert len(policies.in_force(connection)) == 2
    before = left(world)
    run(world)
    assert {id_of(number) for number in range(1, 40) if number % 7 != 1} & before <= left(world)
    assert not left(world) & {id_of(number) for number in range(1, 40) if number % 7 == 1}


_KILLED = """
import sys, os, signal
from datetime import UTC, datetime
from dataclasses import replace
from pathlib import Path
from archiver.db.engine import make_engine
from archiver.maintenance.retention import executor
from archiver.secrets import Keyring
from tests.integration.store.conftest import World
world = World(make_engine(sys.argv[1], "test"), Path(sys.argv[2]))
world.open()
print("ready", flush=True)
made = executor(world.engine, world.archive, Keyring({"test": b"k" * 32}))
replace(made, clock=lambda: datetime(2026, 6, 1, tzinfo=UTC), batch=3).run(1_000_000)
print("done", flush=True)
"""


def test_a_run_that_is_killed_goes_on_and_its_receipt_lists_everything(world: World) -> None:
    stored(world, *range(1, 200))
    in_force(world, delete_after="1y")
    url = world.engine.url.render_as_string(hide_password=False)
    world.close()
    child = subprocess.Popen(
        [sys.executable, "-c", _KILLED, url, str(world.folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        count = "SELECT coalesce(sum(copies), 0) FROM retention_runs"
        eventually(lambda: 0 < int(world.value(count)) < 190, seconds=60)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.communicate(timeout=60)
    before = int(world.value(count))
    assert 0 < before < 199, "killed in the middle"
    world.open()
    done = eventually(lambda: run(world), seconds=60)
    assert done is not None
    assert done.copies == 199
    assert left(world) == set()
    with world.engine.connect() as connection:
        assert len(list(runs.deleted_units(connection, done))) == 199
    assert world.value("SELECT count(*) FROM retention_runs") == 1


# many years


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
