"""Identifiers sort by time, and those of messages come from their content."""

import hashlib
import pickle
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from archiver.db.ids import uuid7s, uuid_of
from archiver.db.tables import message_uuid, uuid7


def test_uuid7_has_its_version_variant_and_time() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= after + 1


def test_uuid7_only_rises_and_never_repeats_in_one_process() -> None:
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(made)
    rising = [uuid7(), *uuid7s(1_000), *uuid7s(0), uuid7()]
    assert rising == sorted(set(rising))
    with ThreadPoolExecutor(8) as pool:
        many = [item for chunk in pool.map(lambda _: [uuid7() for _ in range(2_000)], range(8)) for item in chunk]
    assert len(set(many)) == len(many)


def test_ids_rise_while_the_clock_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    after = [uuid7() for _ in range(100)]
    assert [before, *after] == sorted({before, *after})


def test_a_message_has_the_same_id_for_ever() -> None:
    digest = hashlib.sha256(b"Subject: hello\r\n\r\n").digest()
    made = message_uuid(digest)
    assert made.version == 8
    assert str(made) == "52147933-a855-866a-b5b6-3a70c6062af0"
    assert made != message_uuid(hashlib.sha256(b"Subject: hello\n\n").digest())


@pytest.mark.parametrize("value", [0, 1 << 127, (1 << 128) - 1, 0x52147933A855866AB5B63A70C6062AF0])
def test_an_unchecked_uuid_is_like_any_other(value: int) -> None:
    made, usual = uuid_of(value), uuid.UUID(int=value)
    assert made == usual == pickle.loads(pickle.dumps(made))
    assert (hash(made), str(made), made.bytes, made.is_safe) == (hash(usual), str(usual), usual.bytes, usual.is_safe)


def test_it_wants_a_whole_sha256() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 4"):
        message_uuid(b"abcd")
