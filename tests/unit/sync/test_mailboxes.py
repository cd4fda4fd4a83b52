"""What a listing says about the mailboxes of a source, without a database."""

from __future__ import annotations

from uuid import uuid4

from archiver.sync.listings import CycleListing
from archiver.sync.mailboxes import KnownMailbox, ListedMailbox, plan


def known(key: str, provider_id: str | None = None, name: str | None = None, *, is_gone: bool = False) -> KnownMailbox:
    return KnownMailbox(uuid4(), key, key, name, provider_id, is_gone)


def listed(*boxes: tuple[str, str | None, str | None]) -> dict[str, ListedMailbox]:
    return {key: ListedMailbox(key, name, provider_id) for key, name, provider_id in boxes}


def test_a_mailbox_that_has_not_changed_is_not_written() -> None:
    box = known("a", "1", "A")
    found = plan(listed(("a", "A", "1")), [box], is_whole=True)
    assert (found.known, found.changed, found.new, found.retired, found.gone) == ([box.id], [], [], [], [])
    assert plan(listed(("a", None, None)), [box], is_whole=True).changed == [], "what is not told is no change"


def test_what_is_told_for_the_first_time_is_learned() -> None:
    box = known("a")
    found = plan(listed(("a", "A", "1")), [box], is_whole=True)
    assert [known_id for known_id, _ in found.changed] == found.known == [box.id]


def test_another_provider_id_is_another_mailbox() -> None:
    box = known("a", "1")
    found = plan(listed(("a", None, "2")), [box], is_whole=True)
    assert found.retired == [box]
    assert [replaced for _, replaced in found.new] == [box.id]
    assert (found.known, found.gone) == ([], [])


def test_only_a_whole_listing_says_what_is_gone() -> None:
    box, other = known("a"), known("b", is_gone=True)
    assert plan({}, [box, other], is_whole=True).gone == [box]
    assert plan({}, [box, other], is_whole=False).gone == []


def test_a_mailbox_that_is_listed_again_is_back() -> None:
    box = known("a", "1", is_gone=True)
    assert [known_id for known_id, _ in plan(listed(("a", None, "1")), [box], is_whole=True).changed] == [box.id]


def test_what_is_listed_and_neither_waits_nor_runs_is_overlooked() -> None:
    assert CycleListing(mailboxes=5, waiting=2).overlooked(3) == 0
    assert CycleListing(mailboxes=5, waiting=2).overlooked(2) == 1
    assert CycleListing.read({"mailboxes": 5, "of a later version": 1}) == CycleListing(mailboxes=5)
    assert CycleListing.read(None) == CycleListing()
