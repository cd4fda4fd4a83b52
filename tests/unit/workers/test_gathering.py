"""Small batches go together; nothing of them is lost, whatever comes after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.base import BATCH_BYTES, Batch, ChangeKind, CopyChange, FailedMessage, FolderListing, RawMessage, Skipped
from connectors.errors import Throttled
from workers.gathering import gather, join


def batch(*keys: str, size: int = 10) -> Batch:
    messages = tuple(RawMessage(key, b"x" * size) for key in keys)
    return Batch(messages, listings=(FolderListing(keys[0], keys),), state={"at": keys[-1]})


def test_small_batches_go_together_until_they_are_enough() -> None:
    given = iter([batch(f"{number}") for number in range(120)])
    sizes = []
    while True:
        gathered = gather(given)
        sizes.append(len(gathered.batches))
        if gathered.is_all:
            break
    assert sizes == [50, 50, 20]


@pytest.mark.parametrize(
    "enough",
    [
        batch(*(f"{number}" for number in range(60))),
        batch("large", size=BATCH_BYTES // 2),
        Batch(changes=(CopyChange(ChangeKind.GONE, "a"),)),
        Batch(listings=(FolderListing("INBOX", tuple(map(str, range(2000)))),)),
    ],
    ids=["many messages", "many bytes", "changes", "a long listing"],
)
def test_what_is_enough_waits_for_nothing(enough: Batch) -> None:
    gathered = gather(iter([batch("a"), enough, batch("b")]))
    assert (len(gathered.batches), gathered.is_all) == (2, False)


def test_what_came_before_an_error_is_kept() -> None:
    def breaks_off() -> Iterator[Batch]:
        yield batch("a")
        raise Throttled("later", 3)

    gathered = gather(breaks_off())
    assert [one.state for one in gathered.batches] == [{"at": "a"}]
    assert isinstance(gathered.error, Throttled)
    assert not gathered.is_all


def test_joined_they_say_the_same() -> None:
    one = Batch((RawMessage("a", b"1"),), state={"x": 1, "y": 2}, skipped=(Skipped("s", "rule", "f"),))
    two = Batch((RawMessage("b", b"2"),), state={"x": None, "z": 3}, failed=(FailedMessage("c", "why"),))
    joined = join([one, two])
    assert [message.provider_key for message in joined.messages] == ["a", "b"]
    assert joined.state == {"x": None, "y": 2, "z": 3}
    assert (joined.skipped, joined.failed) == (one.skipped, two.failed)
    assert [listing.folder for listing in join([batch("a"), batch("b")]).listings] == ["a", "b"]
    assert join([one]) is one
