"""The query language: what is read, and what is refused and where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archiver.search.query.errors import QueryError
from archiver.search.query.parser import OPERATORS, parse
from archiver.search.query.syntax import EVERYTHING, And, Held, In, Node, NotQuery, Or, QuerySpan, Size, Text, Time, Value

NOW = datetime(2024, 3, 31, 12, 0, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
HERE = QuerySpan(0, 0)


def read(query: str) -> Node:
    return parse(query, NOW, BERLIN)


def word(text: str) -> Text:
    return Text(text, False, HERE)


def exact(text: str) -> Text:
    return Text(text, True, HERE)


@pytest.mark.parametrize(
    ("query", "tree"),
    [
        ("", EVERYTHING),
        ("  & - ", EVERYTHING),
        ("a", word("a")),
        ("a b", And((word("a"), word("b")))),
        ("a AND b", And((word("a"), word("b")))),
        ("a OR b c", And((Or((word("a"), word("b"))), word("c")))),
        ("a b OR c OR d", And((word("a"), Or((word("b"), word("c"), word("d")))))),
        ("a or b", And((word("a"), word("or"), word("b")))),
        ('"a b"', exact("a b")),
        ("\u201ea b\u201c", exact("a b")),
        ("-a", NotQuery(exact("a"))),
        ("NOT a", NotQuery(exact("a"))),
        ("-(a b)", NotQuery(And((word("a"), word("b"))))),
        ("a-b", exact("a-b")),
        ("12:30", exact("12:30")),
        ("会議", exact("会議")),
        ("from:alice", In("from", "alice", HERE)),
        ("FROM:alice", In("from", "alice", HERE)),
        ('subject:"a b"', In("subject", "a b", HERE)),
        ("subject:(a OR b)", Or((In("subject", "a", HERE), In("subject", "b", HERE)))),
        ('from:(a "b c")', And((In("from", "a", HERE), In("from", "b c", HERE)))),
        ("-in:trash", NotQuery(Held("in", "trash", HERE))),
        ("message-id:<1@x>", Value("message-id", "1@x", HERE)),
        ("has:attachments", Value("has", "attachment", HERE)),
        ("type:.PDF", Value("type", "pdf", HERE)),
        ("type:image/*", Value("type", "image", HERE)),
        ("larger:1.5K", Size(True, 1536, HERE)),
        ("smaller:10MB", Size(False, 10 << 20, HERE)),
    ],
)
def test_what_is_read(query: str, tree: Node) -> None:
    assert read(query) == tree


def berlin(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=BERLIN)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ("on:2024-05-06", berlin(2024, 5, 6), berlin(2024, 5, 7)),
        ("on:2024/5/6", berlin(2024, 5, 6), berlin(2024, 5, 7)),
        ("on:2024-02", berlin(2024, 2, 1), berlin(2024, 3, 1)),
        ("on:2024", berlin(2024, 1, 1), berlin(2025, 1, 1)),
        ("on:today", berlin(2024, 3, 31), berlin(2024, 4, 1)),
        ("on:yesterday", berlin(2024, 3, 30), berlin(2024, 3, 31)),
        ("before:2024-05", None, berlin(2024, 5, 1)),
        ("after:2024-05", berlin(2024, 5, 1), None),
        ("newer_than:12h", datetime(2024, 3, 31, 0, tzinfo=UTC), None),
        ("older_than:2w", None, datetime(2024, 3, 17, 12, tzinfo=UTC)),
        ("older_than:1m", None, berlin(2024, 2, 29, 14)),
        ("older_than:13m", None, berlin(2023, 2, 28, 14)),
        ("older_than:1y", None, berlin(2023, 3, 31, 14)),
    ],
)
def test_dates_are_those_of_the_zone(query: str, since: datetime | None, until: datetime | None) -> None:
    found = read(query)
    assert isinstance(found, Time)
    assert [one and one.timestamp() for one in (found.since, found.until)] == [
        one and one.timestamp() for one in (since, until)
    ]


def test_a_day_of_23_hours() -> None:
    found = read("on:2024-03-31")
    assert isinstance(found, Time)
    assert found.since is not None
    assert found.until is not None
    assert found.until.timestamp() - found.since.timestamp() == 23 * 3600


@pytest.mark.parametrize(
    ("query", "place", "reason"),
    [
        ("a fom:x", (2, 6), "did you mean from:"),
        ("subjet:x", (0, 7), "did you mean subject:"),
        ("folder:x", (0, 7), "did you mean in:"),
        ("size:5", (0, 5), "did you mean larger:"),
        ("http://x", (0, 5), "quotation marks"),
        ("a from: b", (2, 7), "needs a value"),
        ('from:""', (0, 7), "needs a value"),
        ("from:!!", (0, 7), "contains? no word"),
        ("a OR", (2, 4), "between two"),
        ("OR a", (0, 2), "between two"),
        ("a OR OR b", (2, 4), "between two"),
        ("(a", (0, 1), "not closed"),
        ("a (b", (2, 3), "not closed"),
        ("a)", (1, 2), "no opening"),
        ("()", (0, 2), "are empty"),
        ("subject:()", (8, 10), "are empty"),
        ('a "b', (2, 3), "not closed"),
        ('"!!"', (0, 4), "contains? no word"),
        ("NOT", (0, 3), "followed directly"),
        ("subject:(from:x)", (9, 14), "can.t contain another operator"),
        ("on:2024-13", (0, 10), "not a valid date"),
        ("on:2023-02-29", (0, 13), "not a valid date"),
        ("on:soon", (0, 7), "expected a date"),
        ("older_than:soon", (0, 15), "time span"),
        ("older_than:9999y", (0, 16), "too long ago"),
        ("larger:big", (0, 10), "expected a size"),
        ("has:money", (0, 9), "has:attachment"),
        ("sha256:12", (0, 9), "64 hexadecimal"),
        ("thread:x", (0, 8), "id of a thread"),
        ("invoi*", (0, 6), "not in words"),
        ("a 🎉", (2, 3), "can't be searched"),
        ("(" * 30 + "a" + ")" * 30, (20, 21), "nested"),
    ],
)
def test_what_is_refused_and_where(query: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(QueryError, match=reason) as caught:
        read(query)
    assert (caught.value.start, caught.value.end) == place
    assert str(caught.value).splitlines()[2] == "  " + " " * place[0] + "^" * (place[1] - place[0])


def test_a_query_has_a_limit() -> None:
    with pytest.raises(QueryError, match="4,000"):
        read("a " * 3000)


def error_place(query: str) -> int:
    """Where a query is wrong; 0 for a right one."""
    try:
        read(query)
    except QueryError as error:
        return error.start
    return 0


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(query: str) -> None:
    assert 0 <= error_place(query) <= len(query)


_PIECES = st.sampled_from(
    ["a", '"', "(", ")", "-", "OR", "NOT", "AND", ":", " ", "*", "from:", "on:", "2024", "in:", "x y", "<", "会"]
)


@given(st.lists(st.one_of(_PIECES, st.sampled_from([f"{name}:" for name in OPERATORS])), max_size=14))
def test_any_mixture_is_read_or_refused(pieces: list[Any]) -> None:
    query = "".join(pieces)
    assert 0 <= error_place(query) <= len(query)
