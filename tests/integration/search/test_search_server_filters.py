"""The filter grammar against a naive evaluator in Python: generated filters on documents of all shapes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import meilisearch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meilisearch.index import Index

from tests.integration.search.search_process import finished

NAMES = ["num", "text", "list", "deep.inner", "odd", "rare"]
TEXTS = ["alpha", "Beta", "alpha beta", "ÄPFEL", "5", "-3.5", "x'y", 'say "hi"', "a/b", "2024-01-01", "", "zeta]", "東京"]
NUMBERS: list[float] = [0, 5, -3.5, 2.6, 3, 1e12, -7, 2.5, 100]
DOCUMENTS: list[dict[str, Any]] = [
    {"id": 1, "num": 5, "text": "alpha", "list": ["alpha", "Beta"], "deep": {"inner": 3}, "odd": None},
    {"id": 2, "num": -3.5, "text": "Beta", "list": [], "deep": {"inner": "ÄPFEL"}, "odd": ""},
    {"id": 3, "num": "5", "text": "alpha beta", "list": [5, "5", None], "deep": {}, "odd": {}},
    {"id": 4, "num": 2.6, "text": "ÄPFEL", "list": "alpha", "deep": [{"inner": 1}, {"inner": "zeta]"}], "odd": [""]},
    {"id": 5, "num": 1e12, "text": "x'y", "list": [True, 2.5], "deep": None, "odd": True},
    {"id": 6, "num": [3, 100, "alpha"], "text": 'say "hi"', "list": [["alpha"], [2.5]], "odd": []},
    {"id": 7, "text": "", "deep": {"inner": {"x": 1}}},
    {"id": 8, "num": 0, "text": "2024-01-01", "odd": False, "rare": "東京"},
    {"id": 9, "num": -7, "text": "a/b", "list": ["zeta]", "5"], "deep": {"inner": [1, 2, 3]}},
    {"id": 10},
]
MISSING = object()


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return DOCUMENTS


@pytest.fixture
def index(client: meilisearch.Client, make_index: Callable[..., Index]) -> Index:
    # two commits, so that the columns of different segments have different types
    made = make_index(DOCUMENTS[:5], {"filterableAttributes": NAMES})
    finished(client, made.add_documents(DOCUMENTS[5:]))
    return made


def quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


values = st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS).map(str))
names = st.sampled_from(NAMES)
conditions = st.one_of(
    st.tuples(st.just("compare"), names, st.sampled_from(["=", "!="]), values),
    st.tuples(st.just("compare"), names, st.sampled_from([">", ">=", "<", "<="]), values.filter(bool)),
    st.tuples(st.just("compare"), names, st.sampled_from(["CONTAINS", "STARTS WITH"]), st.sampled_from(TEXTS).filter(bool)),
    st.tuples(st.just("between"), names, st.sampled_from(NUMBERS).map(str), st.sampled_from(NUMBERS).map(str)),
    st.tuples(st.just("in"), names, st.booleans(), st.lists(values, max_size=4)),
    st.tuples(st.just("is"), names, st.booleans(), st.sampled_from(["EXISTS", "NULL", "EMPTY"])),
)
trees = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)


def written(tree: Any) -> str:
    """The tree in the filter language."""
    match tree:
        case ("compare", name, operator, value):
            return f"{name} {operator} {quoted(value)}"
        case ("between", name, low, high):
            return f"{name} {low} TO {high}"
        case ("in", name, negated, items):
            return f"{name} {'NOT ' if negated else ''}IN [{', '.join(map(quoted, items))}]"
        case ("is", name, negated, "EXISTS"):
            return f"{name} {'NOT ' if negated else ''}EXISTS"
        case ("is", name, negated, state):
            return f"{name} IS {'NOT ' if negated else ''}{state}"
        case ("not", inner):
            return f"NOT ({written(inner)})"
        case (word, parts):
            return "(" + f" {word.upper()} ".join(map(written, parts)) + ")"
    raise AssertionError(tree)


def naive(tree: Any, document: dict[str, Any]) -> bool:
    """Whether the document fits, by the rules of the documentation."""
    match tree:
        case ("not", inner):
            return not naive(inner, document)
        case ("and", parts):
            return all(naive(part, document) for part in parts)
        case ("or", parts):
            return any(naive(part, document) for part in parts)
        case ("in", name, negated, items):
            return negated != any(_equal(leaf, item) for leaf in leaves(document, name) for item in items)
        case ("is", name, negated, state):
            return negated != _is(at(document, name), state)
        case ("between", name, low, high):
            return any(_is_number(leaf) and float(low) <= leaf <= float(high) for leaf in leaves(document, name))
        case ("compare", name, "!=", value):
            return not any(_equal(leaf, value) for leaf in leaves(document, name))
        case ("compare", name, operator, value):
            return any(_compared(leaf, operator, value) for leaf in leaves(document, name))
    raise AssertionError(tree)


def at(value: Any, path: str) -> list[Any]:
    """All values at a path; objects in arrays are gone through."""
    first, _, rest = path.partition(".")
    if isinstance(value, list):
        return [found for item in value if isinstance(item, dict) for found in at(item, path)]
    if not isinstance(value, dict) or first not in value:
        return []
    return at(value[first], rest) if rest else [value[first]]


def leaves(document: dict[str, Any], path: str) -> list[Any]:
    flat: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif value is not None and not isinstance(value, dict):
            flat.append({True: "true", False: "false"}[value] if isinstance(value, bool) else value)

    for found in at(document, path):
        walk(found)
    return flat


def _is(found: list[Any], state: str) -> bool:
    if state == "EXISTS":
        return bool(found)
    if state == "NULL":
        return any(value is None for value in found)
    return any(value in ("", [], {}) and not isinstance(value, bool) and value != 0 for value in found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _folded(value: str) -> str:
    return unicodedata.normalize("NFKD", value.strip()).lower()


def _as_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _equal(leaf: Any, value: str) -> bool:
    number = _as_number(value)
    return leaf == number if _is_number(leaf) else _folded(leaf) == _folded(value)


def _compared(leaf: Any, operator: str, value: str) -> bool:
    if operator == "=":
        return _equal(leaf, value)
    if operator in ("CONTAINS", "STARTS WITH"):
        if _is_number(leaf):
            return False
        return _folded(leaf).startswith(_folded(value)) if operator == "STARTS WITH" else _folded(value) in _folded(leaf)
    number = _as_number(value)
    if number is None:
        pair: tuple[Any, Any] | None = None if _is_number(leaf) else (_folded(leaf), _folded(value))
    else:
        pair = (leaf, number) if _is_number(leaf) else None
    if pair is None:
        return False
    left, right = pair
    return {">": left > right, ">=": left >= right, "<": left < right, "<=": left <= right}[operator]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
def test_filters_match_exactly_what_they_say(index: Index, tree: Any) -> None:
    expected = [document["id"] for document in DOCUMENTS if naive(tree, document)]
    answer = index.search("", {"filter": written(tree), "limit": 100})
    assert [hit["id"] for hit in answer["hits"]] == expected
    assert answer["estimatedTotalHits"] == len(expected)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.one_of(conditions, st.lists(conditions, min_size=1, max_size=3)), min_size=1, max_size=3))
def test_arrays_are_and_of_or(index: Index, rows: list[Any]) -> None:
    given_filter = [[written(one) for one in row] if isinstance(row, list) else written(row) for row in rows]
    expected = [
        document["id"]
        for document in DOCUMENTS
        if all(any(naive(one, document) for one in row) if isinstance(row, list) else naive(row, document) for row in rows)
    ]
    assert [hit["id"] for hit in index.search("", {"filter": given_filter})["hits"]] == expected


def test_ten_thousand_values(make_index: Callable[..., Index]) -> None:
    index = make_index([{"id": number, "key": f"k{number}"} for number in range(500)], {"filterableAttributes": ["key"]})
    wanted = ", ".join(f"k{number}" for number in range(250, 10_250))
    assert index.search("", {"filter": f"key IN [{wanted}]"})["estimatedTotalHits"] == 250
    long = " OR ".join(f"key = k{number}" for number in range(0, 2000, 2))
    assert index.search("", {"filter": long})["estimatedTotalHits"] == 250


def test_patterns_of_filterable_attributes(make_index: Callable[..., Index]) -> None:
    rule = {
        "attributePatterns": ["tag_*", "meta"],
        "features": {"facetSearch": True, "filter": {"equality": True, "comparison": True}},
    }
    index = make_index(
        [{"id": 1, "tag_a": "x", "meta": {"size": 5}}, {"id": 2, "tag_b": "x"}], {"filterableAttributes": [rule]}
    )
    assert [hit["id"] for hit in index.search("", {"filter": "tag_b = x"})["hits"]] == [2]
    assert [hit["id"] for hit in index.search("", {"filter": "meta.size > 4"})["hits"]] == [1]
