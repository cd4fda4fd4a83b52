"""Policies: what they match, when they delete, what they keep, and who has to agree."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from archiver.access.principal import LOCAL_OPERATOR
from archiver.errors import Conflict, UsageError
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import save_config
from archiver.retention import holds, policies, runs, simulation
from archiver.retention.delete import delete_mailbox_mail, delete_message
from archiver.retention.holds import NewHold, OnHold
from archiver.retention.keeping import explain
from archiver.retention.policies import PolicyVersion
from connectors.base import Batch
from tests.integration.retention.policies_world import (
    NOW,
    SECOND_PERSON,
    approve,
    checks,
    in_force,
    left,
    propose,
    received,
    run,
    stored,
)
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.integration.store.filled import id_of
from tests.integration.store.test_deletion import MakeWorld

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


def test_a_requested_simulation_is_the_work_of_a_worker(world: World) -> None:
    stored(world, 1)
    version = propose(world, delete_after="1y")
    simulation.request(world.engine, LOCAL_OPERATOR, version)
    simulation.request(world.engine, LOCAL_OPERATOR, version)
    assert world.value("SELECT count(*) FROM outbox WHERE job = 'apply-retention'") == 1
    assert simulation.run_requested(world.engine, world.archive, runs.SYSTEM) == 1
    assert simulation.run_requested(world.engine, world.archive, runs.SYSTEM) == 0
    assert world.value("SELECT simulation ->> 'due' FROM policy_versions") == "1"


def test_a_simulation_that_fails_does_not_stop_the_others(world: World) -> None:
    stored(world, 1)
    broken = propose(world, name="Broken", query="mailbox:bob@example.org", delete_after="1y")
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE mailboxes SET address = 'robert@example.org' WHERE id = :i"), {"i": SECOND})
    for version in (broken, propose(world, delete_after="1y")):
        simulation.request(world.engine, LOCAL_OPERATOR, version)
    assert simulation.run_requested(world.engine, world.archive, runs.SYSTEM) == 2
    found = world.rows("SELECT name, simulated_at IS NOT NULL, simulation_started_at FROM policy_versions ORDER BY name")
    assert found == [("Broken", False, None), ("Rule", True, None)]


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
