"""Small batches go together; nothing of them is lost, whatever comes after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from archiver.sync.batching import clean_batch, gather, join
from connectors.base import BATCH_BYTES, Batch, ChangeKind, CopyChange, FailedMessage, FolderListing, RawMessage, Skipped
from connectors.errors import Throttled


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


def test_names_and_reasons_are_cleaned_and_keys_are_not() -> None:
    given = Batch(
        messages=(RawMessage("k\0", b"x", folder="a\0", flags=("\\Seen",), labels=("l\ud800",)), RawMessage("fine", b"x")),
        failed=(FailedMessage("k\0", "why\0", "a\0"),),
        listings=(FolderListing("a\0", ("k\0",)),),
        state={"imap:a\0": "b\0", "gone\0": None},
    )
    clean = clean_batch(given)
    assert (clean.messages[0].folder, clean.messages[0].labels) == ("a\ufffd", ("l\ufffd",))
    assert clean.messages[1] is given.messages[1]
    assert clean.messages[0].provider_key == clean.listings[0].provider_keys[0] == "k\0"
    assert (clean.failed[0].reason, clean.listings[0].folder) == ("why\ufffd", "a\ufffd")
    assert clean.state == {"imap:a\ufffd": "b\ufffd", "gone\ufffd": None}
