"""Who goes first: divides the slots of the workers between the owners of sources, and between the sources of each. Pure.

Shares are relative: an owner alone gets all slots, and what one leaves idle the others use. Bulk imports have slots of their
own, so that a hundred imported files neither delay the syncs nor wait for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from archiver.queue.jobs import MAILBOX_PRIORITY, AdvanceWorkflow, ProcessMailbox

JOBS_PER_ROUND = 500
SMALL = 100
"""Sessions with at most this many mailboxes are soon done, so they get more shares."""
SHARES_OF_SMALL = 4
_LAST_LEVEL = 9

Group = tuple[UUID | None, bool]
"""The owner, and whether it is about bulk imports."""


@dataclass(frozen=True, slots=True)
class PickedJobs:
    id: UUID
    job: str
    payload: Any
    source_id: UUID | None
    session_id: UUID | None
    priority: int
    owner_id: UUID | None
    is_import: bool
    session_mailboxes: int | None

    @property
    def group(self) -> Group:
        return self.owner_id, self.is_import


@dataclass(frozen=True, slots=True)
class SentMailboxes:
    """Mailboxes of a source that are queued in Redis or running."""

    source_id: UUID | None
    owner_id: UUID | None
    is_import: bool
    mailboxes: int

    @property
    def group(self) -> Group:
        return self.owner_id, self.is_import


@dataclass(frozen=True, slots=True)
class Room:
    """How much may be sent now. `slots` and `import_slots` are those of all workers together."""

    slots: int
    import_slots: int = 0
    mailboxes: int = 0
    """Beyond those that are due by their share."""
    others: int = 0
    workflows: int = JOBS_PER_ROUND


def choose(rows: Iterable[PickedJobs], sent: Sequence[SentMailboxes], room: Room) -> list[PickedJobs]:
    """Control jobs pass every limit; mailboxes go round robin over owners and their sources.

    More jobs are sent than there are slots, so that no slot is ever idle. What an owner sends beyond its share is its stock,
    which waits behind the mailboxes of every other owner. Workflows get at most half of the slots, so that syncs go on.
    """
    control: list[PickedJobs] = []
    mailboxes: list[PickedJobs] = []
    rest: list[PickedJobs] = []
    workflow_room = room.workflows
    for row in rows:
        if row.job == ProcessMailbox.name:
            mailboxes.append(row)
        elif row.job == AdvanceWorkflow.name:
            if workflow_room > 0:
                rest.append(row)
            workflow_room -= 1
        else:
            (control if row.priority <= 1 else rest).append(row)
    placed = _place(mailboxes, sent, room)
    return [*control, *placed, *rest[: max(0, room.others)]][: JOBS_PER_ROUND + len(control)]


def _place(mailboxes: list[PickedJobs], sent: Sequence[SentMailboxes], room: Room) -> list[PickedJobs]:
    """The mailboxes to send, with their priorities: within a share, or in the stock as far as there is room."""
    groups = {row.group for row in mailboxes} | {one.group for one in sent}
    shares = {group: share_of(group, groups, room) for group in groups}
    levels: list[tuple[int, int, PickedJobs]] = []
    for group in groups:
        mine = [row for row in mailboxes if row.group == group]
        levels += [(_level(row, at, shares[group]), at, row) for at, row in _positions(mine, sent, group)]
    placed, left = [], room.mailboxes
    for level, _, row in sorted(levels, key=lambda item: (item[0], item[1], item[2].id)):
        if level == 0 or left > 0:
            left -= 1
            placed.append(replace(row, priority=MAILBOX_PRIORITY + level))
    return placed


def share_of(group: Group, groups: set[Group], room: Room) -> float:
    """Slots of the group. Imports and syncs divide the slots only while both want some."""
    of_kind = [one for one in groups if one[1] == group[1]]
    imports = min(room.import_slots, room.slots - 1) if room.slots > 1 else room.slots / 2
    slots = float(room.slots) if len(of_kind) == len(groups) else float(imports if group[1] else room.slots - imports)
    return max(slots, 0.5) / len(of_kind)


def _positions(rows: list[PickedJobs], sent: Sequence[SentMailboxes], group: Group) -> Iterable[tuple[int, PickedJobs]]:
    """The place of each mailbox if the sources of the group took turns, counted from those that were sent before."""
    turns = {one.source_id: one.mailboxes for one in sent if one.group == group}
    ahead = [(turn, 0, "") for mailboxes in turns.values() for turn in range(mailboxes)]
    waiting: dict[tuple[int, int, str], PickedJobs] = {}
    for row in rows:
        turn = turns.get(row.source_id, 0)
        turns[row.source_id] = turn + 1
        waiting[turn, 1, str(row.id)] = row
    for position, place in enumerate(sorted([*ahead, *waiting])):
        if place in waiting:
            yield position, waiting[place]


def _level(row: PickedJobs, position: int, share: float) -> int:
    """0 within the share of its owner; then one more for each further share."""
    is_small = row.session_mailboxes is not None and row.session_mailboxes <= SMALL
    return min(_LAST_LEVEL, int(position / (share * (SHARES_OF_SMALL if is_small else 1))))
