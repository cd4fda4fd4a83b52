"""How messages are put together to be parsed: many small ones, few large ones, each once and in order."""

from typing import Any, NamedTuple, cast

import pytest

from archiver.indexing.documents import parse_groups
from archiver.mail.message import SIDE_BY_SIDE


class Row(NamedTuple):
    size_bytes: int
    attempts: int = 0


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([10], [1]),
        ([10] * SIDE_BY_SIDE, [SIDE_BY_SIDE]),
        ([10] * (2 * SIDE_BY_SIDE + 3), [SIDE_BY_SIDE, SIDE_BY_SIDE, 3]),
        ([3 << 20, 1 << 20, 1 << 20], [2, 1]),
        ([10, 100 << 20, 10, 10], [1, 1, 2]),
        ([100 << 20, 100 << 20], [1, 1]),
    ],
)
def test_groups_are_bounded_in_number_and_in_bytes(sizes: list[int], groups: list[int]) -> None:
    rows = [Row(size) for size in sizes]
    found = list(parse_groups(cast(Any, rows)))
    assert [len(group) for group in found] == groups
    assert [row for group in found for row in group] == rows


def test_what_was_not_heard_of_again_is_read_by_itself_after_all_others() -> None:
    rows = [Row(1), Row(2, attempts=1), Row(3), Row(4, attempts=1)]
    assert list(parse_groups(cast(Any, rows))) == [[rows[0], rows[2]], [rows[1]], [rows[3]]]
