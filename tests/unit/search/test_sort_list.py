"""The `sort` of a search in the address: commas inside a point don't divide."""

import pytest

from archiver.search_server.query.search_request import _sort_list


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:asc,b:desc", ["a:asc", "b:desc"]),
        (" a:asc ,, ", ["a:asc"]),
        ("_geoPoint(1, 2):asc,b:asc", ["_geoPoint(1, 2):asc", "b:asc"]),
        ("a,_geoPoint(1,2):asc", ["a", "_geoPoint(1,2):asc"]),
    ],
)
def test_sort_list(given: str, expected: list[str]) -> None:
    assert _sort_list(given) == expected
