"""Which state may follow which. The statements that change a state are guarded by these tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from archiver.models.states import MailboxRunState, SessionState, SourceStatus

S = TypeVar("S", bound=StrEnum)

_PENDING, _IMPORTING, _ACTIVE, _SYNCING, _PAUSED, _ERROR, _IMPORTED = SourceStatus
SOURCE_MOVES: Mapping[SourceStatus, frozenset[SourceStatus]] = {
    _PENDING: frozenset({_IMPORTING, _PAUSED, _ERROR}),
    _IMPORTING: frozenset({_ACTIVE, _IMPORTED, _PAUSED, _ERROR}),
    _ACTIVE: frozenset({_SYNCING, _PAUSED, _ERROR}),
    _SYNCING: frozenset({_ACTIVE, _PAUSED, _ERROR}),
    _PAUSED: frozenset({_PENDING, _ACTIVE, _IMPORTED}),
    _ERROR: frozenset({_IMPORTING, _SYNCING, _PAUSED, _PENDING, _ACTIVE}),
    _IMPORTED: frozenset({_IMPORTING}),
}

MAILBOX_MOVES: Mapping[MailboxRunState, frozenset[MailboxRunState]] = {
    MailboxRunState.QUEUED: frozenset({MailboxRunState.RUNNING, MailboxRunState.CANCELLED, MailboxRunState.FAILED}),
    MailboxRunState.RUNNING: frozenset(
        {MailboxRunState.QUEUED, MailboxRunState.DONE, MailboxRunState.FAILED, MailboxRunState.CANCELLED}
    ),
    MailboxRunState.DONE: frozenset(),
    MailboxRunState.FAILED: frozenset(),
    MailboxRunState.CANCELLED: frozenset(),
}

SESSION_MOVES: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.LISTING: frozenset({SessionState.RUNNING}),
    SessionState.RUNNING: frozenset(),  # it ends as a run, and its row goes
}


def before(moves: Mapping[S, frozenset[S]], target: S) -> list[str]:
    """The states from which `target` may be reached: what a guarded UPDATE allows."""
    return [str(state) for state, following in moves.items() if target in following]
