"""Who goes first: owners, their sources, and imports beside syncs."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

import pytest

from archiver.sync.shares import PickedJobs, Room, SentMailboxes, choose, share_of

ANN, BOB = uuid4(), uuid4()


def picked(
    source: UUID | None, job: str = "process-mailbox", priority: int = 10, *, of: int = 1000, owner: UUID | None = None,
    is_import: bool = False,
) -> PickedJobs:  # fmt: skip
    return PickedJobs(uuid4(), job, {}, source, None, priority, owner, is_import, of)


def sent(source: UUID, count: int, owner: UUID | None = None, is_import: bool = False) -> SentMailboxes:
    return SentMailboxes(source, owner, is_import, count)


def test_mailboxes_go_round_robin_over_the_sources() -> None:
    big, small = uuid4(), uuid4()
    rows = [picked(big) for _ in range(50)] + [picked(small) for _ in range(3)]
    chosen = choose(rows, [], Room(5, mailboxes=6))
    assert [row.source_id for row in chosen].count(small) == 3
    assert len(chosen) == 6


def test_a_source_that_has_many_under_way_waits_for_one_that_has_none() -> None:
    big, small = uuid4(), uuid4()
    rows = [picked(big) for _ in range(50)] + [picked(small) for _ in range(3)]
    assert [row.source_id for row in choose(rows, [sent(big, 20)], Room(5, mailboxes=3))] == [small] * 3
    full = [picked(big) for _ in range(50)] + [picked(small, of=9) for _ in range(9)]
    assert [row.source_id for row in choose(full, [sent(big, 20)], Room(5))] == [small] * 9, "a full stock is no wall"


def test_what_is_beyond_a_share_waits_behind_the_mailboxes_of_others() -> None:
    big = uuid4()
    alone = choose([picked(big) for _ in range(12)], [], Room(5, mailboxes=12))
    assert [row.priority for row in alone] == [10] * 5 + [11] * 5 + [12] * 2


def test_an_owner_of_many_sources_gets_no_more_than_one_of_a_single_source() -> None:
    rows = [picked(uuid4(), owner=ANN) for _ in range(40)] + [picked(source, owner=BOB) for source in [uuid4()] * 8]
    first = Counter(row.owner_id for row in choose(rows, [], Room(6)))
    assert first == {ANN: 3, BOB: 3}


def test_sources_of_one_owner_take_turns_even_if_one_of_them_filled_the_stock() -> None:
    big, others = uuid4(), [uuid4() for _ in range(3)]
    rows = [picked(source, owner=ANN) for source in others] + [picked(big, owner=ANN) for _ in range(20)]
    chosen = choose(rows, [sent(big, 20, ANN), sent(uuid4(), 9, BOB)], Room(10))
    assert {row.source_id for row in chosen} == set(others)
    assert {row.priority for row in chosen} == {10}


def test_a_finished_mailbox_does_not_bring_its_source_back_to_the_front() -> None:
    """Otherwise one source of an owner could keep its slot, and the others of the same owner would never come."""
    sources = [uuid4() for _ in range(20)]
    busy = [sent(source, 1, ANN) for source in sources[1:]]
    (again,) = choose([picked(sources[0], owner=ANN)], [*busy, sent(uuid4(), 2, BOB)], Room(4, mailboxes=1))
    assert again.priority == 19


def test_imports_and_syncs_have_slots_of_their_own_but_leave_none_idle() -> None:
    syncs = [picked(uuid4()) for _ in range(20)]
    imports = [picked(uuid4(), is_import=True) for _ in range(20)]
    both = Counter(row.is_import for row in choose([*syncs, *imports], [], Room(5, import_slots=2)))
    assert both == {False: 3, True: 2}
    assert len(choose(imports, [], Room(5, import_slots=2))) == 5
    assert len(choose(syncs, [], Room(5, import_slots=2))) == 5


@pytest.mark.parametrize("slots", [1, 2, 5, 200])
@pytest.mark.parametrize("import_slots", [1, 2, 200])
def test_every_share_is_more_than_nothing(slots: int, import_slots: int) -> None:
    groups = {(None, False), (ANN, False), (ANN, True)}
    shares = [share_of(group, groups, Room(slots, import_slots)) for group in groups]
    assert all(share > 0 for share in shares)
    assert sum(shares) <= max(1.0, slots)


def test_control_jobs_pass_every_limit_and_come_first() -> None:
    source = uuid4()
    rows = [picked(source) for _ in range(5)] + [picked(source, "sync-cycle-finished", 1)]
    assert [row.job for row in choose(rows, [sent(source, 20)], Room(5))] == ["sync-cycle-finished"]
    assert choose(rows, [], Room(5, mailboxes=2))[0].job == "sync-cycle-finished"
