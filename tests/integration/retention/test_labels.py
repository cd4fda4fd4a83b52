"""Retention labels: who puts them on messages, what they keep and hide, and that a rebuild restores them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from archiver.access.principal import LOCAL_OPERATOR, Principal, rights_of
from archiver.access.scope import EVERYTHING, MailScope, scope_of
from archiver.db.ids import uuid7
from archiver.db.states import UserRole
from archiver.errors import Conflict, NotAllowed, NotFound, UsageError
from archiver.maintenance.recovery.adopt import adopt
from archiver.maintenance.recovery.rebuild import rebuild
from archiver.maintenance.snapshot import save_config
from archiver.reading import messages as reading
from archiver.retention import labels, simulation
from archiver.retention.delete import delete_message
from archiver.retention.holds import OnHold
from archiver.retention.labels import Labelling, LabelRequest
from archiver.search.query.errors import QueryError
from tests.integration.retention.policies_world import NOW, in_force, left, propose, run, stored
from tests.integration.store.conftest import SECOND, World
from tests.integration.store.filled import id_of
from tests.integration.store.test_deletion import MakeWorld

LATER = datetime(2040, 1, 1, tzinfo=UTC)
ALICE = Principal("alice@example.org", UserRole.USER, rights_of(UserRole.USER), uuid7())
BOB = Principal("bob@example.org", UserRole.USER, rights_of(UserRole.USER), uuid7())
AUDITOR = Principal("audit@example.org", UserRole.AUDITOR, rights_of(UserRole.AUDITOR), uuid7())


def labelling(world: World, principal: Principal = LOCAL_OPERATOR, scope: MailScope = EVERYTHING) -> Labelling:
    return Labelling(world.engine, world.archive, principal, scope)


def put(world: World, label: str, *numbers: int, by: Principal = LOCAL_OPERATOR, **more: Any) -> int:
    return labelling(world, by).put(LabelRequest(label, [id_of(number) for number in numbers], **more))


def remove(world: World, label: str, *numbers: int, by: Principal = LOCAL_OPERATOR) -> int:
    return labelling(world, by).remove(LabelRequest(label, [id_of(number) for number in numbers]))


def define(world: World, name: str, **more: bool) -> None:
    with world.engine.begin() as connection:
        labels.define(connection, LOCAL_OPERATOR, name, name.title(), **more)


def on(world: World, number: int) -> dict[str, datetime | None]:
    with world.engine.connect() as connection:
        return {one.name: one.keep_until for one in labels.on_messages(connection, [id_of(number)])}


def test_a_message_is_kept_until_the_date_of_its_label(world: World) -> None:
    stored(world, 1, 2)
    in_force(world, delete_after="1y")
    assert put(world, "keep-until", 1, keep_until=LATER, reason="the contract") == 1
    assert put(world, "keep-until", 1, keep_until=LATER) == 0, "it is there already"
    done = run(world)
    assert done is not None
    assert left(world) == {id_of(1)}
    with pytest.raises(OnHold, match=r"kept until 2040-01-01 by local-operator \(label keep-until\)"):
        delete_message(world.engine, world.archive, id_of(1), "asked for")
    run(world, LATER + timedelta(days=1))
    assert left(world) == set()
    assert world.value("SELECT count(*) FROM message_labels") == 0


def test_a_simulation_counts_labels(world: World) -> None:
    stored(world, 1, 2)
    put(world, "keep-until", 1, keep_until=LATER)
    version = propose(world, delete_after="1y")
    found = simulation.simulate(world.engine, world.archive, LOCAL_OPERATOR, version, NOW).simulation or {}
    assert (found["due"], found["kept_longer"]) == (1, 1)
    assert [month for month, *_ in found["months"]] == ["2026-06", "2040-01"]


def test_a_policy_refers_to_a_label(world: World) -> None:
    stored(world, 1, 2, 3)
    define(world, "invoice-8y")
    put(world, "invoice-8y", 1, 2)
    in_force(world, name="Clean up", delete_after="1y")
    in_force(world, name="Invoices", query="retention:invoice-8y", keep_for="8y", from_year_end=True)
    run(world)
    assert left(world) == {id_of(1), id_of(2)}
    remove(world, "invoice-8y", 2)
    run(world)
    assert left(world) == {id_of(1)}
    with pytest.raises(QueryError, match="no retention label invioce"):
        propose(world, name="Typo", query="retention:invioce", keep_for="8y")


def test_a_locked_label_stays_and_its_date_only_moves_on(world: World) -> None:
    stored(world, 1)
    with world.engine.begin() as connection:
        labels.define(connection, LOCAL_OPERATOR, "keep-until", "Keep until", locks=True)
    put(world, "keep-until", 1, keep_until=LATER)
    with pytest.raises(Conflict, match="locked"):
        remove(world, "keep-until", 1)
    with pytest.raises(Conflict, match="later date"):
        put(world, "keep-until", 1, keep_until=LATER - timedelta(days=1))
    assert put(world, "keep-until", 1, keep_until=LATER + timedelta(days=1)) == 1
    with pytest.raises(Conflict, match="can't be unlocked"):
        define(world, "keep-until")
    assert on(world, 1) == {"keep-until": LATER + timedelta(days=1)}


def test_others_can_neither_remove_nor_shorten_what_a_person_has_set(world: World) -> None:
    stored(world, 1)
    put(world, "keep-until", 1, by=ALICE, keep_until=LATER)
    with pytest.raises(NotAllowed, match=r"alice@example\.org"):
        remove(world, "keep-until", 1, by=BOB)
    with pytest.raises(NotAllowed):
        put(world, "keep-until", 1, by=BOB, keep_until=LATER - timedelta(days=1))
    assert put(world, "keep-until", 1, by=ALICE, keep_until=LATER - timedelta(days=1)) == 1
    assert remove(world, "keep-until", 1) == 1, "an administrator can"
    assert remove(world, "keep-until", 1) == 0


def test_who_may_not_put_labels_on_what(world: World) -> None:
    stored(world, 1)
    with pytest.raises(NotAllowed):
        put(world, "personal", 1, by=AUDITOR)
    with pytest.raises(NotFound):
        labelling(world, ALICE, MailScope(frozenset({SECOND}))).put(LabelRequest("personal", [id_of(1)]))
    with pytest.raises(NotFound):
        put(world, "personal", 1, 99)
    assert on(world, 1) == {}


def test_personal_mail_is_hidden_from_auditors_once_its_label_says_so(world: World) -> None:
    stored(world, 1, 2)
    put(world, "personal", 1, by=ALICE)

    def seen() -> list[bool]:
        with world.engine.connect() as connection:
            scope, found = scope_of(connection, AUDITOR), []
            for number in (1, 2):
                try:
                    found.append(bool(reading.copies(connection, scope, id_of(number))))
                except NotFound:
                    found.append(False)
            return found

    assert seen() == [True, True]
    with world.engine.begin() as connection:
        labels.define(connection, LOCAL_OPERATOR, "personal", "Personal", hides=True)
    assert seen() == [False, True]
    with world.engine.connect() as connection:
        assert scope_of(connection, replace(AUDITOR, role=UserRole.USER, may_read_all=True)) == EVERYTHING


def test_labels_survive_a_rebuild_and_an_older_database(world: World, new_world: MakeWorld) -> None:
    stored(world, 1, 2, 3)
    define(world, "invoice-8y", locks=True)
    save_config(world.engine, world.archive)
    put(world, "invoice-8y", 1, by=ALICE, reason="a voucher")
    put(world, "personal", 1, 2)
    world.close()
    older = new_world(copy_of=world, folder=world.folder)
    world.open()
    put(world, "keep-until", 3, keep_until=LATER)
    remove(world, "personal", 2)
    wanted = [on(world, number) for number in (1, 2, 3)]
    assert wanted == [{"invoice-8y": None, "personal": None}, {}, {"keep-until": LATER}]
    world.close()
    older.open()
    adopt(older.engine, older.archive, rest_seconds=0)
    assert [on(older, number) for number in (1, 2, 3)] == wanted
    older.close()
    rebuilt = new_world(empty=True, folder=world.folder)
    rebuilt.open()
    rebuild(rebuilt.engine, rebuilt.archive)
    assert [on(rebuilt, number) for number in (1, 2, 3)] == wanted
    with rebuilt.engine.connect() as connection:
        (kept,) = [one for one in labels.on_messages(connection, [id_of(1)]) if one.name == "invoice-8y"]
    assert (kept.set_by, kept.reason, kept.is_locked) == ("alice@example.org", "a voucher", True)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (LabelRequest("keep-until", [id_of(1)]), "needs a date"),
        (LabelRequest("keep-until", [id_of(1)], NOW - timedelta(days=9999)), "in the future"),
        (LabelRequest("personal", [id_of(1)], LATER), "takes no date"),
        (LabelRequest("personal", []), "name up to"),
        (LabelRequest("other", [id_of(1)]), "no retention label other"),
        (LabelRequest("personal", [id_of(1)], None, "x" * 2001), "reason"),
    ],
)
def test_what_is_no_label(world: World, request_: LabelRequest, says: str) -> None:
    stored(world, 1)
    with pytest.raises((UsageError, NotFound), match=says):
        labelling(world).put(request_)
    assert world.value("SELECT count(*) FROM message_labels") == 0


@pytest.mark.parametrize(("name", "title"), [("", "x"), ("Ä", "x"), ("-x", "x"), ("x" * 61, "x"), ("x", " ")])
def test_what_is_no_definition(world: World, name: str, title: str) -> None:
    world.open()
    with world.engine.begin() as connection, pytest.raises(UsageError):
        labels.define(connection, LOCAL_OPERATOR, name, title)


def test_a_retired_label_stays_on_its_messages(world: World) -> None:
    stored(world, 1, 2)
    define(world, "old")
    put(world, "old", 1)
    with world.engine.begin() as connection:
        labels.retire(connection, LOCAL_OPERATOR, "old")
        assert labels.count_uses(connection) == {"old": 1}
        assert "old" not in {one.name for one in labels.list_labels(connection)}
    with pytest.raises(Conflict, match="retired"):
        put(world, "old", 2)
    assert on(world, 1) == {"old": None}
