"""Which messages belong together, by what is in them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from archiver.mail.thread_groups import group_messages
from archiver.mail.threads import Correspondents

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


def same_people(ids: Sequence[UUID]) -> Mapping[UUID, Correspondents]:
    both = frozenset({"ann@example.org", "bob@example.org"})
    return dict.fromkeys(ids, Correspondents(both, both))


def groups(*rows: Row) -> set[frozenset[int]]:
    return {frozenset(one.int for one in group) for group in group_messages(rows, same_people)}


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
    found = group_messages(rows, lambda ids: {one: Correspondents(frozenset({str(one)})) for one in ids})
    assert len(found) == 2


def _day(number: int, **more: Any) -> Row:
    return Row(UUID(int=number), f"m{number}", sort_at=START + timedelta(days=number), **more)


def test_weekly_reports_with_answers_are_as_many_conversations() -> None:
    reports = [_day(week * 7, subject="Weekly report") for week in range(1, 21)]
    answers = [_day(week * 7 + 1, subject="Re: Weekly report", in_reply_to=f"m{week * 7}") for week in range(1, 21)]
    assert groups(*reports, *answers) == {frozenset({week * 7, week * 7 + 1}) for week in range(1, 21)}


def test_an_answer_without_ids_joins_the_latest_before_it_alone() -> None:
    first, answer, second = (
        _day(1, subject="Weekly report"),
        _day(3, subject="Re: Weekly report"),
        _day(8, subject="Weekly report"),
    )
    late = _day(9, subject="Re: Weekly report")
    assert groups(first, answer, second) == {frozenset({1, 3}), frozenset({8})}
    assert groups(first, answer, second, late) == {frozenset({1, 3}), frozenset({8, 9})}
    assert groups(first, late) == {frozenset({1, 9})}, "unless the second is not there"


def test_patches_of_a_series_are_not_one_conversation_by_subject() -> None:
    rows = [_day(number, subject=f"[PATCH {number}/9] fix leak") for number in range(1, 10)]
    answer = _day(10, subject="Re: [PATCH 2/9] fix leak")
    assert groups(*rows, answer) == {frozenset({2, 10}), *(frozenset({number}) for number in range(1, 10) if number != 2)}


def test_an_answer_may_be_to_an_answer_that_names_its_parent() -> None:
    first = _day(1, subject="Lunch")
    named = _day(2, subject="Re: Lunch", in_reply_to="m1")
    assert groups(first, named, _day(3, subject="AW: Lunch")) == {frozenset({1, 2, 3})}
