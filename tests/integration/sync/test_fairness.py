"""One tenant with very many mailboxes and fifty small ones: the small ones take at most twice as long as without it.

The relay picks from a real outbox; slots, priorities and time are played, so that the result depends on no machine.
"""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import count
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from archiver.db.ids import uuid7
from archiver.queue.jobs import QueueName
from archiver.sync.relay import Relay, mark_sent

SLOTS = 5
SMALL_SOURCES, SMALL_MAILBOXES = 50, 4
OWNERS = ("one owner for all", "an owner for each")

_ADD_SOURCE = text("INSERT INTO ingestion_sources (id, kind, name, owner_id) VALUES (:id, 'imap', :name, :owner)")
_ADD_SESSION = text("""
    INSERT INTO sync_sessions (id, ingestion_source_id, state, total_mailboxes) VALUES (:session, :id, 'running', :count)""")
_ADD_MAILBOXES = text("""
    INSERT INTO outbox (id, queue, job, payload, priority, source_id, session_id)
    SELECT gen_random_uuid(), 'ingestion', 'process-mailbox', '{}', 10, :id, :session FROM generate_series(1, :count)""")


def add_source(engine: Engine, name: str, mailboxes: int, owner: UUID | None) -> UUID:
    values = {"id": uuid7(), "session": uuid7(), "name": name, "owner": owner, "count": mailboxes}
    with engine.begin() as connection:
        for statement in (_ADD_SOURCE, _ADD_SESSION, _ADD_MAILBOXES):
            connection.execute(statement, values)
    return values["id"]  # type: ignore[return-value]


def add_user(engine: Engine, name: str) -> UUID:
    user_id = uuid7()
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO users (id, email) VALUES (:id, :email)"), {"id": user_id, "email": f"{name}@x.org"}
        )
    return user_id


class PlayedWorkers:
    """Rounds in which each slot works on one mailbox, by priority and then by age, as BullMQ does."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.relay = engine, Relay(engine, "", "", SLOTS, 1000, 2)
        self.queue: list[tuple[int, int, UUID, UUID]] = []
        self.order = count()

    def send(self) -> None:
        with self.engine.connect() as connection:
            rows = self.relay.pick(connection, QueueName.INGESTION)
            mark_sent(connection, rows)
        for row in rows:
            assert row.source_id is not None
            heapq.heappush(self.queue, (row.priority, next(self.order), row.id, row.source_id))

    def work(self) -> list[UUID]:
        """The sources whose mailboxes were worked on."""
        ran = [heapq.heappop(self.queue) for _ in range(min(SLOTS, len(self.queue)))]
        with self.engine.begin() as connection:
            connection.execute(text("DELETE FROM outbox WHERE id = ANY(:ids)"), {"ids": [job[2] for job in ran]})
        return [job[3] for job in ran]

    def finish(self, small: set[UUID]) -> dict[UUID, int]:
        """The round in which each of these sources was done."""
        done, left = dict[UUID, int](), Counter(dict.fromkeys(small, SMALL_MAILBOXES))
        for number in range(1, 10_000):
            self.send()
            ran = self.work()
            assert len(ran) == SLOTS or not self.queue, "a slot was idle"
            for source in small.intersection(ran):
                left[source] -= ran.count(source)
                if not left[source]:
                    done[source] = number
            if len(done) == len(small):
                return done
        raise AssertionError("the small sources never end")


def small_sources(engine: Engine, owners: str, admin: UUID) -> set[UUID]:
    found = set()
    for number in range(SMALL_SOURCES):
        owner = admin if owners == OWNERS[0] else add_user(engine, f"u{number}")
        found.add(add_source(engine, f"small {number}", SMALL_MAILBOXES, owner))
    return found


def check_fairness(engine: Engine, owners: str, mailboxes: int) -> None:
    admin = add_user(engine, "admin")
    alone = PlayedWorkers(engine).finish(small_sources(engine, owners, admin))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM ingestion_sources"))
        connection.execute(text("DELETE FROM users WHERE id <> :id"), {"id": admin})
    tenant, workers = add_source(engine, "tenant", mailboxes, admin), PlayedWorkers(engine)
    workers.send()
    assert workers.work() == [tenant] * SLOTS, "the tenant comes first, and has filled the queue before the others arrive"
    workers.send()
    beside = workers.finish(small_sources(engine, owners, admin))
    assert max(beside.values()) <= 2 * max(alone.values())
    assert sum(beside.values()) <= 2 * sum(alone.values())


@pytest.mark.parametrize("owners", OWNERS)
def test_small_sources_beside_a_large_tenant(engine: Engine, owners: str) -> None:
    check_fairness(engine, owners, 3_000)


@pytest.mark.chaos
@pytest.mark.parametrize("owners", OWNERS)
def test_small_sources_beside_a_tenant_of_100000_mailboxes(engine: Engine, owners: str) -> None:
    check_fairness(engine, owners, 100_000)


def test_a_tenant_alone_has_all_slots_and_a_stock(engine: Engine) -> None:
    add_source(engine, "tenant", 300, None)
    workers = PlayedWorkers(engine)
    workers.send()
    assert len(workers.queue) == 4 * SLOTS
