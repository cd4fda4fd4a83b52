"""Policies in a stored world: propose, approve, run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.principal import LOCAL_OPERATOR
from archiver.evidence import signing
from archiver.maintenance.retention import executor
from archiver.retention import policies, runs, simulation
from archiver.retention.policies import NewPolicy, PolicyVersion
from archiver.retention.runs import RetentionRun
from archiver.secrets import Keyring
from connectors.base import Batch, RawMessage
from tests.integration.store.conftest import MAILBOX, World
from tests.integration.store.filled import messages_of

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
