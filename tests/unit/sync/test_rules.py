"""The pure parts of the engine: who may follow whom, and when a run is a success."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from archiver.db.states import MailboxRunState, RunOutcome, SessionState, SourceStatus
from archiver.sync.cycle import RunTotals, run_outcome
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
