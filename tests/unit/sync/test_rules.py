"""The pure parts of the engine: who may follow whom, who goes first, and when a run is a success."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import pytest

from archiver.db.states import MailboxRunState, RunOutcome, SessionState, SourceStatus
from archiver.sync.cycle import RunTotals, run_outcome
from archiver.sync.relay import PickedJobs, choose
from archiver.sync.transitions import MAILBOX_BEGINS, MAILBOX_EVENTS, SESSION_EVENTS, SOURCE_EVENTS, SOURCE_PAUSED, before

MACHINES = [
    (SOURCE_EVENTS, SourceStatus, SourceStatus.PENDING),
    (MAILBOX_EVENTS, MailboxRunState, MailboxRunState.QUEUED),
    (SESSION_EVENTS, SessionState, SessionState.LISTING),
]


@pytest.mark.parametrize(("events", "states", "start"), MACHINES, ids=["source", "mailbox", "session"])
def test_every_state_can_be_reached(events: tuple[Any, ...], states: type[StrEnum], start: str) -> None:
    reached, new = set[str](), {start}
    while new:
        reached |= new
        new = {target for moves in events for target, allowed in moves.items() if allowed & reached} - reached
    assert reached == set(states)


def test_a_mailbox_that_has_ended_stays_ended() -> None:
    ended = {MailboxRunState.DONE, MailboxRunState.FAILED, MailboxRunState.CANCELLED}
    assert not any(allowed & ended for moves in MAILBOX_EVENTS for allowed in moves.values())


def test_guards_are_the_states_before() -> None:
    assert set(before(MAILBOX_BEGINS, MailboxRunState.RUNNING)) == {"queued", "running"}
    assert set(before(SOURCE_PAUSED, SourceStatus.PAUSED)) == {"pending", "importing", "active", "syncing", "error"}


def picked(
    source: UUID | None, job: str = "process-mailbox", priority: int = 10, under_way: int = 0, in_front: int = 0, of: int = 1000
) -> PickedJobs:
    return PickedJobs(uuid4(), job, {}, source, None, priority, under_way, in_front, of)


def test_mailboxes_go_round_robin_over_the_sources() -> None:
    big, small = uuid4(), uuid4()
    rows = [picked(big) for _ in range(50)] + [picked(small) for _ in range(3)]
    chosen = choose(rows, mailbox_room=6, room=0, slots=5)
    assert [row.source_id for row in chosen].count(small) == 3


def test_a_source_that_has_many_under_way_waits_for_one_that_has_none() -> None:
    big, small = uuid4(), uuid4()
    rows = [picked(big, under_way=20) for _ in range(50)] + [picked(small) for _ in range(3)]
    assert [row.source_id for row in choose(rows, mailbox_room=3, room=0, slots=5)][:3] == [small] * 3
    full = [picked(big, under_way=20, in_front=5) for _ in range(50)] + [picked(small, of=9) for _ in range(9)]
    assert [row.source_id for row in choose(full, mailbox_room=0, room=0, slots=5)] == [small] * 9, "a full stock is no wall"


def test_what_is_beyond_the_share_of_a_source_waits_behind_the_mailboxes_of_others() -> None:
    big, other, small = uuid4(), uuid4(), uuid4()
    alone = choose([picked(big) for _ in range(8)], mailbox_room=8, room=0, slots=5)
    assert [row.priority for row in alone] == [10] * 5 + [11] * 3
    rows = [picked(big) for _ in range(8)] + [picked(other, in_front=1) for _ in range(8)] + [picked(small, of=9)] * 8
    in_front = Counter(row.source_id for row in choose(rows, mailbox_room=24, room=0, slots=6) if row.priority == 10)
    assert in_front == {big: 2, other: 1, small: 8}


def test_control_jobs_pass_every_limit_and_come_first() -> None:
    source = uuid4()
    rows = [picked(source) for _ in range(5)] + [picked(source, "sync-cycle-finished", 1)]
    busy = [picked(source, in_front=5) for _ in range(5)] + [rows[-1]]
    assert [row.job for row in choose(busy, mailbox_room=0, room=0, slots=5)] == ["sync-cycle-finished"]
    assert choose(rows, mailbox_room=2, room=0, slots=5)[0].job == "sync-cycle-finished"


@pytest.mark.parametrize(
    ("counts", "waiting", "expected"),
    [
        (RunTotals(), 0, RunOutcome.SUCCESS),
        (RunTotals(mailboxes=2, completed=2, skipped=5), 0, RunOutcome.SUCCESS),
        (RunTotals(mailboxes=2, completed=2, missing=1), 0, RunOutcome.INCOMPLETE),
        (RunTotals(mailboxes=2, completed=2, failed=1), 0, RunOutcome.INCOMPLETE),
        (RunTotals(mailboxes=2, completed=1, not_completed=1), 0, RunOutcome.INCOMPLETE),
        (RunTotals(mailboxes=2, completed=2), 1, RunOutcome.INCOMPLETE),
        (RunTotals(mailboxes=2, not_completed=2), 0, RunOutcome.FAILED),
    ],
)
def test_a_run_with_anything_missing_is_never_a_success(counts: RunTotals, waiting: int, expected: RunOutcome) -> None:
    assert run_outcome(counts, waiting) is expected
