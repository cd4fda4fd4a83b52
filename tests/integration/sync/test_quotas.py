"""Buckets on a real Valkey: shared by all who ask, never more than a quota in any minute, smaller after a refusal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from archiver.supervisor.folder import DataFolder
from archiver.supervisor.valkey import EmbeddedValkey
from archiver.sync.quotas import Buckets

USER = ("google:p:alice", 6000.0)
PROJECT = ("google:p", 12_000.0)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    folder = DataFolder(tmp_path_factory.mktemp("buckets") / "data")
    folder.prepare()
    server = EmbeddedValkey(folder)
    server.prepare()
    with server.running():
        yield server


@pytest.fixture
def buckets(valkey: EmbeddedValkey) -> Iterator[Buckets]:
    valkey._client().flushall()
    opened = Buckets(valkey.url())
    yield opened
    opened.close()


def test_a_full_bucket_gives_a_tenth_of_a_minute_and_then_says_when(buckets: Buckets) -> None:
    assert buckets.take([USER], 20, 100)[0] == 30
    turns, wait = buckets.take([USER], 20, 100)
    assert turns == 0
    assert 3.5 < wait < 4.7, "until seven tenths of it are full again, at 90 units a second"
    assert buckets.take([("google:p:bob", 6000.0)], 20, 1) == (1, 0.0), "others have their own"


def test_whoever_wants_little_waits_for_little(buckets: Buckets) -> None:
    while buckets.take([USER], 20, 100)[0]:
        pass
    assert buckets.take([USER], 20, 1)[1] < 0.3


def test_the_emptiest_of_several_decides_and_nothing_is_taken_in_vain(buckets: Buckets) -> None:
    assert buckets.take([USER], 20, 100)[0] == 30
    assert buckets.take([USER, PROJECT], 20, 10)[0] == 0
    assert buckets.take([PROJECT], 20, 100)[0] == 60


def test_a_request_dearer_than_the_bucket_is_possible(buckets: Buckets) -> None:
    assert buckets.take([("small", 60.0)], 20, 3)[0] == 1


def test_many_at_once_get_no_more_than_there_is(valkey: EmbeddedValkey, buckets: Buckets) -> None:
    slow = ("slow", 600.0)  # 60 in the bucket, 9 a second
    taken: list[int] = []

    def work() -> None:
        own = Buckets(valkey.url())
        taken.extend(own.take([slow], 1, 3)[0] for _ in range(10))
        own.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 60 <= sum(taken) <= 60 + 9 * 30


def test_a_refusal_shuts_it_for_all_and_makes_it_smaller_once(buckets: Buckets, valkey: EmbeddedValkey) -> None:
    assert buckets.back_off(USER[0], 7.0) == pytest.approx(7.0)
    for _ in range(5):
        buckets.back_off(USER[0], 3.0)  # the other requests that were under way
    turns, wait = Buckets(valkey.url()).take([USER, PROJECT], 20, 5)
    assert turns == 0
    assert 6 < wait <= 7
    share = float(valkey._client().hget("archiver:bucket:google:p:alice", "share") or 0)
    assert share == pytest.approx(0.8, abs=0.01)


def test_pauses_grow_when_nobody_says_how_long(buckets: Buckets, valkey: EmbeddedValkey) -> None:
    pauses = []
    for _ in range(4):
        pauses.append(buckets.back_off("x", None))
        valkey._client().hset("archiver:bucket:x", "shut", 0 if not pauses else _now(valkey) - 1)
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0])


def test_without_its_server_it_asks_for_a_pause(tmp_path: Path) -> None:
    away = Buckets(f"unix://{tmp_path}/nobody")
    assert away.take([USER], 1, 5) == (0, 5.0)
    assert away.back_off("x", 2.0) == 2.0


def _now(valkey: EmbeddedValkey) -> float:
    seconds, micro = valkey._client().time()
    return float(seconds) + float(micro) / 1e6
