"""A filled archive: three batches, copies that changed, messages that were deleted."""

import hashlib
import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

from archiver.db.tables import message_uuid
from archiver.retention.delete import delete_message
from connectors.base import Batch, ChangeKind, CopyChange, RawMessage
from tests.integration.store.conftest import SECOND, World
from tests.support.store_world import mail

ATTACHMENT = random.Random(7).randbytes(60_000)
NOW = timedelta(0)


def messages_of(*numbers: int) -> tuple[RawMessage, ...]:
    received = datetime(2024, 3, 1, tzinfo=UTC)
    return tuple(
        RawMessage(
            f"k{number}",
            mail(number, attachment=ATTACHMENT if number % 5 == 0 else None),
            folder="INBOX",
            labels=("ä",),
            received_at=received + timedelta(minutes=number),
        )
        for number in numbers
    )


def fill(world: World) -> None:
    ingest = world.open()
    for start in range(0, 60, 20):
        ingest.store_batch(world.origin(), Batch(messages_of(*range(start, start + 20))))
    ingest.store_batch(world.origin(SECOND), Batch(messages_of(1, 5, 70)))
    changes = (
        CopyChange(ChangeKind.MOVED, "k1", folder="Old", new_provider_key="Old1"),
        CopyChange(ChangeKind.GONE, "k2"),
        CopyChange(ChangeKind.RELABELLED, "k3", labels=("new",), flags=("\\Seen",)),
    )
    ingest.store_batch(world.origin(), Batch(changes=changes))
    delete_message(world.engine, world.archive, id_of(4), "asked for")
    delete_message(world.engine, world.archive, id_of(10), "asked for, with an attachment")


def id_of(number: int) -> UUID:
    return message_uuid(hashlib.sha256(messages_of(number)[0].data or b"").digest())


def read_all(world: World) -> int:
    rows = world.rows("SELECT sha256 FROM messages")
    for row in rows:
        assert hashlib.sha256(world.archive.read(bytes(row.sha256))).digest() == bytes(row.sha256)
    return len(rows)
