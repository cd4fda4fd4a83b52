"""Which messages belong together, by what is in them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from archiver.services.threads import grouped

START = datetime(2024, 3, 5, tzinfo=UTC)
HOME, WORK = UUID(int=100), UUID(int=200)


@dataclass(frozen=True)
class Row:
    id: UUID
    internet_message_id: str | None = None
    in_reply_to: str | None = None
    reference_ids: list[str] = field(default_factory=list)
    subject: str | None = None
    sort_at: datetime = START
    mailboxes: list[UUID] = field(default_factory=lambda: [HOME])


def same_people(ids: Sequence[UUID]) -> Mapping[UUID, frozenset[str]]:
    return dict.fromkeys(ids, frozenset({"ann@example.org"}))


def groups(*rows: Row) -> set[frozenset[int]]:
    return {frozenset(one.int for one in group) for group in grouped(rows, same_people)}


def test_ids_join_and_what_is_not_there_joins_nothing() -> None:
    root, reply = Row(UUID(int=1), "a"), Row(UUID(int=2), "b", in_reply_to="a")
    apart = Row(UUID(int=3), "d", reference_ids=["c"])  # c answers to b, but is not seen
    bridge = Row(UUID(int=4), "c", reference_ids=["b"])
    assert groups(root, reply, apart) == {frozenset({1, 2}), frozenset({3})}
    assert groups(root, reply, apart, bridge) == {frozenset({1, 2, 3, 4})}
    also = Row(UUID(int=5), "e", reference_ids=["c"])
    assert groups(apart, also) == {frozenset({3, 5})}, "both name what they answer to, though it is not seen"


def test_subjects_join_within_a_mailbox_and_a_month() -> None:
    asked = Row(UUID(int=1), "a", subject="Lunch")
    answered = Row(UUID(int=2), "b", subject="Re: Lunch", sort_at=START + timedelta(days=2))
    assert groups(asked, answered) == {frozenset({1, 2})}
    elsewhere = Row(UUID(int=2), "b", subject="Re: Lunch", sort_at=START + timedelta(days=2), mailboxes=[WORK])
    assert groups(asked, elsewhere) == {frozenset({1}), frozenset({2})}
    late = Row(UUID(int=2), "b", subject="Re: Lunch", sort_at=START + timedelta(days=40))
    assert groups(asked, late) == {frozenset({1}), frozenset({2})}
    again = Row(UUID(int=3), "c", subject="Lunch", sort_at=START + timedelta(days=1))
    assert groups(asked, again) == {frozenset({1}), frozenset({3})}, "two that both begin"


def test_strangers_are_not_joined_by_a_subject() -> None:
    rows = (Row(UUID(int=1), "a", subject="Lunch"), Row(UUID(int=2), "b", subject="Re: Lunch"))
    found = grouped(rows, lambda ids: {one: frozenset({str(one)}) for one in ids})
    assert len(found) == 2
