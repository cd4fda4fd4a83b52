"""The filter language: trees and errors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.search_server.query.filter_grammar import (
    MAX_DEPTH,
    AllOf,
    Among,
    AnyOf,
    Between,
    Compare,
    FilterError,
    Is,
    NotFilter,
    parse_filter,
)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = b", Compare("a", "=", "b")),
        ("a=b", Compare("a", "=", "b")),
        ("a.b != 'x y'", Compare("a.b", "!=", "x y")),
        (r'"a b" = "it\"s"', Compare("a b", "=", 'it"s')),
        (r"a = 'it\'s'", Compare("a", "=", "it's")),
        ("a >= -1.5", Compare("a", ">=", "-1.5")),
        ("a 1 TO 2", Between("a", "1", "2")),
        ("a IN [x, 'y z',]", Among("a", ("x", "y z"))),
        ("a IN []", Among("a", ())),
        ("a NOT IN [x]", NotFilter(Among("a", ("x",)))),
        ("a EXISTS", Is("a", "EXISTS")),
        ("a NOT EXISTS", NotFilter(Is("a", "EXISTS"))),
        ("a IS NULL", Is("a", "NULL")),
        ("a IS NOT EMPTY", NotFilter(Is("a", "EMPTY"))),
        ("a CONTAINS x", Compare("a", "CONTAINS", "x")),
        ("a NOT CONTAINS x", NotFilter(Compare("a", "CONTAINS", "x"))),
        ("a STARTS WITH x", Compare("a", "STARTS WITH", "x")),
        ("NOT a = 1", NotFilter(Compare("a", "=", "1"))),
        ("NOT NOT a = 1", Compare("a", "=", "1")),
        ("a = 1 OR b = 2 AND c = 3", AnyOf((Compare("a", "=", "1"), AllOf((Compare("b", "=", "2"), Compare("c", "=", "3")))))),
        (
            "(a = 1 OR b = 2) AND c = 3",
            AllOf((AnyOf((Compare("a", "=", "1"), Compare("b", "=", "2"))), Compare("c", "=", "3"))),
        ),
    ],
)
def test_trees(text: str, tree: Any) -> None:
    assert parse_filter(text) == tree


def test_arrays() -> None:
    one, two = Compare("a", "=", "1"), Compare("b", "=", "2")
    assert parse_filter(["a = 1", ["a = 1", "b = 2"]]) == AllOf((one, AnyOf((one, two))))
    assert parse_filter([["a = 1"]]) == one
    assert parse_filter([]) is None
    assert parse_filter("  ") is None
    assert parse_filter(None) is None


@pytest.mark.parametrize(
    "text",
    ["a", "a =", "= b", "a = b c", "(a = b", "a = b)", "a IN x", "a IN [x", "a IN [x y]", "a IS", "a NOT = b", "a = AND",
     "a 1 TO", "a STARTS x", "a = 'b", "a & b", "_geoRadius(1, 2, 3)", "AND", "a = b AND", "()"],
)  # fmt: skip
def test_errors_name_the_place(text: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert str(caught.value)


def test_wrong_types() -> None:
    for value in (5, {"a": 1}, [5], [["a = 1", ["b = 2"]]]):
        with pytest.raises(FilterError):
            parse_filter(value)


def test_nesting_has_a_limit_and_length_has_none() -> None:
    assert parse_filter("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH) == Compare("a", "=", "1")
    with pytest.raises(FilterError, match="nested"):
        parse_filter("(" * 5000 + "a = 1" + ")" * 5000)
    assert isinstance(parse_filter(" OR ".join(["a = 1"] * 20_000)), AnyOf)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(FilterError):
        parse_filter(text)


@given(st.text(min_size=1, max_size=20))
def test_quoted_values_come_through(value: str) -> None:
    quoted = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    assert parse_filter(f"a = {quoted}") == Compare("a", "=", value)
