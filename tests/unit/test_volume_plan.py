"""Which messages go into which volume."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archiver.exports.volume_plan import VolumePlan, plan_volumes
from archiver.workflows.definition import MAX_PARTS


def test_a_volume_is_full_when_the_next_file_exceeds_it() -> None:
    assert plan_volumes([4, 4, 4, 20, 1], 8, is_single=False).bounds == (0, 2, 3, 4, 5)
    assert plan_volumes([4, 4, 4, 20, 1], 8, is_single=True).bounds == (0, 5)
    assert plan_volumes([1] * 120_000, 1 << 30, is_single=False).bounds == (0, 50_000, 100_000, 120_000)


def test_an_export_of_nothing_has_a_volume_for_its_manifest() -> None:
    plan = plan_volumes([], 8, is_single=False)
    assert (plan.volumes, plan.parts, list(plan.messages(1))) == (1, 1, [])


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 30))
def test_every_message_is_in_one_volume_and_every_volume_in_one_part(sizes: list[int], limit: int) -> None:
    plan = plan_volumes(sizes, limit, is_single=False)
    numbers = [number for volume in range(1, plan.volumes + 1) for number in plan.messages(volume)]
    assert numbers == list(range(len(sizes)))
    assert [volume for part in range(plan.parts) for volume in plan.numbers(part)] == list(range(1, plan.volumes + 1))
    for volume in range(1, plan.volumes + 1):
        held = [sizes[number] for number in plan.messages(volume)]
        assert len(held) <= 1 or sum(held) <= limit


def test_very_many_volumes_share_parts() -> None:
    plan = VolumePlan(tuple(range(2_502)))
    assert plan.parts <= MAX_PARTS
    assert [volume for part in range(plan.parts) for volume in plan.numbers(part)] == list(range(1, 2_502))
