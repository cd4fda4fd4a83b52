"""The legal state transitions. Every statement that changes a state is guarded by these tables.

Each table belongs to one event, and maps each state that the event can lead to onto the states that it may start from.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from archiver.db.states import MailboxRunState, SessionState, SourceStatus

S = TypeVar("S", bound=StrEnum)
Moves = Mapping[S, frozenset[S]]

_PENDING, _IMPORTING, _ACTIVE, _SYNCING, _PAUSED, _ERROR, _IMPORTED = SourceStatus
_RUNS = frozenset({_IMPORTING, _SYNCING})

# A job that runs again finds its source in the state in which it left it.
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
    _IMPORTED: frozenset({_PAUSED}),  # a source that is read once waits for its next import
}

_QUEUED, _RUNNING, _DONE, _FAILED, _CANCELLED = MailboxRunState
_OPEN = frozenset({_QUEUED, _RUNNING})

# Beginning a slice of a running mailbox takes it over.
MAILBOX_BEGINS: Moves[MailboxRunState] = {_RUNNING: _OPEN}
MAILBOX_GIVEN_BACK: Moves[MailboxRunState] = {_QUEUED: frozenset({_RUNNING})}
MAILBOX_ENDS: Moves[MailboxRunState] = {_DONE: frozenset({_RUNNING}), _FAILED: frozenset({_RUNNING})}
MAILBOX_GIVEN_UP: Moves[MailboxRunState] = {_FAILED: _OPEN}
MAILBOX_CANCELLED: Moves[MailboxRunState] = {_CANCELLED: _OPEN}

# A session ends as a run, and its row is deleted.
SESSION_PUBLISHED: Moves[SessionState] = {SessionState.RUNNING: frozenset({SessionState.LISTING})}

SOURCE_EVENTS = (CYCLE_BEGINS, CYCLE_ENDS, SOURCE_BREAKS, SOURCE_PAUSED, SOURCE_RESUMED)
MAILBOX_EVENTS = (MAILBOX_BEGINS, MAILBOX_GIVEN_BACK, MAILBOX_ENDS, MAILBOX_GIVEN_UP, MAILBOX_CANCELLED)
SESSION_EVENTS = (SESSION_PUBLISHED,)


def before(moves: Moves[S], target: S) -> list[str]:
    """The states from which the event may lead to `target`: the guard of an UPDATE."""
    return sorted(map(str, moves[target]))
