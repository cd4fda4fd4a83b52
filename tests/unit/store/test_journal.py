"""Journal frames: what they carry, in which order they stand, and that those of the first version are read for ever."""

from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest

from archiver.store.content import as_bytes
from archiver.store.frames import FrameKind
from archiver.store.journal import BEFORE_STAMPS, Occurrence, OccurrenceBatch, Origin, Stamp, Tombstones, order_of

AT = datetime(2026, 11, 16, 3, 30, tzinfo=UTC)
SOURCE, MAILBOX, TOMBSTONE = (UUID(int=number) for number in (1, 2, 3))
ORIGIN = Origin(SOURCE, "imap", "work", MAILBOX, "alice@example.org")
COPIES = (Occurrence(b"h" * 32, "INBOX\u241f1\u241f42", "INBOX", ("\\Seen",), (), AT),)


def test_a_frame_carries_the_stamp_of_its_transaction() -> None:
    batch = OccurrenceBatch(AT, ORIGIN, None, COPIES, Stamp(3, 17))
    content = as_bytes(batch.record().content)
    assert (orjson.loads(content)["g"], orjson.loads(content)["n"], orjson.loads(content)["v"]) == (3, 17, 2)
    assert OccurrenceBatch.decode(content) == batch
    assert order_of(content) == (Stamp(3, 17), AT)


def test_a_frame_of_the_first_version_stands_before_all_generations() -> None:
    content = orjson.dumps({"v": 1, "at": AT, "run_id": None, "copies": [], **ORIGIN.encode()})
    assert OccurrenceBatch.decode(content) == OccurrenceBatch(AT, ORIGIN, None, ())
    assert order_of(content) == (BEFORE_STAMPS, AT)
    assert Stamp(1, 1) > BEFORE_STAMPS
    assert Stamp(2, 1) > Stamp(1, 900)


def test_a_tombstone_counts_when_it_is_confirmed() -> None:
    intended = Tombstones(AT, "asked for", "alice", ((MAILBOX, "k", b"h" * 32),), TOMBSTONE, Stamp(1, 5))
    record = intended.record()
    assert record.kind is FrameKind.TOMBSTONE
    assert Tombstones.decode(as_bytes(record.content)) == intended
    confirmed = Tombstones.decode_confirmed(as_bytes(record.content))
    assert confirmed.is_confirmed
    assert confirmed.record().kind is FrameKind.TOMBSTONE_CONFIRMED
    assert Tombstones.decode_confirmed(as_bytes(confirmed.record().content)) == confirmed


def test_a_tombstone_of_the_first_version_was_written_once_and_counts() -> None:
    content = orjson.dumps({"v": 1, "at": AT, "reason": "r", "actor": "a", "copies": [[str(MAILBOX), "k", "68" * 32]]})
    found = Tombstones.decode(content)
    assert (found.is_confirmed, found.id, found.copies) == (True, None, ((MAILBOX, "k", b"h" * 32),))


def test_a_frame_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="version 3"):
        order_of(orjson.dumps({"v": 3, "at": AT}))
