"""`expires:`: what the policies in force would delete, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from archiver.access.principal import LOCAL_OPERATOR
from archiver.access.scope import EVERYTHING
from archiver.retention import holds
from archiver.retention.expiry import find_expiring
from archiver.retention.holds import NewHold
from archiver.retention.labels import Labelling, LabelRequest
from archiver.search.query.errors import QueryError
from archiver.search.query.parser import parse
from archiver.search.query.syntax import Expiry
from connectors.base import Batch
from tests.integration.retention.policies_world import in_force, received
from tests.integration.store.conftest import MAILBOX, SECOND, World
from tests.integration.store.filled import id_of

START = datetime(2020, 6, 1, tzinfo=UTC)


def expiring(world: World, year: int, mailboxes: frozenset[UUID] | None = None, limit: int = 100) -> set[UUID]:
    since, until = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    return set(find_expiring(world.engine, since, until, mailboxes, limit))


def test_what_expires_when(world: World) -> None:
    ingest = world.open()
    for mailbox, *numbers in ((MAILBOX, 1, 2, 3, 4), (SECOND, 2)):
        mails = tuple(received(number, START.replace(year=2020 + number)) for number in numbers)
        ingest.store_batch(world.origin(mailbox), Batch(mails))
    assert expiring(world, 2031) == set(), "without a policy, nothing expires"
    in_force(world, name="Clean up", delete_after="10y")
    assert [expiring(world, year) for year in (2030, 2031, 2032)] == [set(), {id_of(1)}, {id_of(2)}]
    assert expiring(world, 2031, frozenset({SECOND})) == set()
    assert expiring(world, 2032, frozenset({SECOND})) == {id_of(2)}
    in_force(world, name="Longer", query='"with the number 1"', keep_for="20y")
    assert (expiring(world, 2031), expiring(world, 2041)) == ({id_of(1)} & set(), {id_of(1)})
    put = LabelRequest("keep-until", [id_of(3)], datetime(2050, 1, 2, tzinfo=UTC))
    Labelling(world.engine, world.archive, LOCAL_OPERATOR, EVERYTHING).put(put)
    assert (expiring(world, 2033), expiring(world, 2050)) == (set(), {id_of(3)})
    holds.place(world.engine, LOCAL_OPERATOR, NewHold("Case", "x", message_ids=[id_of(4)]))
    assert expiring(world, 2034) == set()
    assert len(find_expiring(world.engine, START, START + timedelta(days=40_000), None, 2)) == 2


def test_how_it_is_written() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    year = parse("expires:2027", now, UTC)
    assert isinstance(year, Expiry)
    assert (year.since, year.until) == (datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
    soon = parse("expires:30d", now, UTC)
    assert isinstance(soon, Expiry)
    assert (soon.since, soon.until) == (now, now + timedelta(days=30))
    for wrong in ("expires:later", "expires:9999999y", "expires:"):
        with pytest.raises(QueryError):
            parse(wrong, now, UTC)
