"""Which state may follow which, and by what. The statements that change a state are guarded by these tables.

Each table belongs to one event, and says for each state that the event leads to from which states it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from archiver.models.states import MailboxRunState, SessionState, SourceStatus

S = TypeVar("S", bound=StrEnum)
Moves = Mapping[S, frozenset[S]]

_PENDING, _IMPORTING, _ACTIVE, _SYNCING, _PAUSED, _ERROR, _IMPORTED = SourceStatus
_RUNS = frozenset({_IMPORTING, _SYNCING})

# A job that is run again finds its source as it left it.
CYCLE_BEGINS: Moves[SourceStatus] = {
    _IMPORTING: frozenset({_PENDING, _IMPORTING, _ERROR, _IMPORTED}),
    _SYNCING: frozenset({_ACTIVE, _SYNCING, _ERROR}),
}
CYCLE_ENDS: Moves[SourceStatus] = {
    _ACTIVE: _RUNS | {_ERROR},
    _IMPORTED: frozenset({_IMPORTING, _ERROR}),
    _ERROR: _RUNS | {_ERROR},
}
SOURCE_BREAKS: Moves[SourceStatus] = {_ERROR: _RUNS | {_PENDING, _ACTIVE, _ERROR}}
SOURCE_PAUSED: Moves[SourceStatus] = {_PAUSED: _RUNS | {_PENDING, _ACTIVE, _ERROR}}
SOURCE_RESUMED: Moves[SourceStatus] = {
    _PENDING: frozenset({_PAUSED, _ERROR}),
    _ACTIVE: frozenset({_PAUSED, _ERROR}),
    _IMPORTED: frozenset({_PAUSED}),
}

_QUEUED, _RUNNING, _DONE, _FAILED, _CANCELLED = MailboxRunState
_OPEN = frozenset({_QUEUED, _RUNNING})

# Whoever begins a slice of a mailbox that runs takes it over.
MAILBOX_BEGINS: Moves[MailboxRunState] = {_RUNNING: _OPEN}
MAILBOX_GIVEN_BACK: Moves[MailboxRunState] = {_QUEUED: frozenset({_RUNNING})}
MAILBOX_ENDS: Moves[MailboxRunState] = {_DONE: frozenset({_RUNNING}), _FAILED: frozenset({_RUNNING})}
MAILBOX_GIVEN_UP: Moves[MailboxRunState] = {_FAILED: _OPEN}
MAILBOX_CANCELLED: Moves[MailboxRunState] = {_CANCELLED: _OPEN}

# A session ends as a run, and its row goes.
SESSION_PUBLISHED: Moves[SessionState] = {SessionState.RUNNING: frozenset({SessionState.LISTING})}

SOURCE_EVENTS = (CYCLE_BEGINS, CYCLE_ENDS, SOURCE_BREAKS, SOURCE_PAUSED, SOURCE_RESUMED)
MAILBOX_EVENTS = (MAILBOX_BEGINS, MAILBOX_GIVEN_BACK, MAILBOX_ENDS, MAILBOX_GIVEN_UP, MAILBOX_CANCELLED)
SESSION_EVENTS = (SESSION_PUBLISHED,)


def before(moves: Moves[S], target: S) -> list[str]:
    """The states from which the event may lead to `target`: what a guarded UPDATE allows."""
    return sorted(map(str, moves[target]))
