"""From a query to searches that mean the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from archiver.search.query.compiler import HoldScope, Join, Search, compile_query
from archiver.search.query.errors import QueryError
from archiver.search.query.expression import All, Expression, Filter, No, QueryPart, Some, Term, render, split
from archiver.search.query.parser import parse
from archiver.search.query.syntax import QuerySpan, Text

ALICE, BOB, WORK = UUID(int=1), UUID(int=2), UUID(int=9)


class KnownNames:
    def addresses(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]:
        return [f"{number}@x" for number in range(limit)] if pattern == "many*" else ["al@x"]

    def mailboxes(self, name: str) -> frozenset[UUID]:
        return frozenset({"alice": [ALICE], "bob": [BOB]}.get(name, []))

    def sources(self, name: str) -> dict[UUID, frozenset[UUID]]:
        return {WORK: frozenset({ALICE, BOB})} if name == "work" else {}

    def tagged(self, pattern: str, reader: UUID | None, limit: int) -> Sequence[UUID]:
        return [UUID(int=7)] if (pattern, reader) == ("mine", UUID(int=1)) else []

    def noted(self, text: str, reader: UUID | None, limit: int) -> Sequence[UUID]:
        return [UUID(int=number) for number in range(limit if text == "everywhere" else 0)]

    def holds(self, name: str) -> Sequence[HoldScope]:
        return (
            [HoldScope(frozenset({ALICE}), ("eve@x.org",), Text("deal", True, QuerySpan(0, 4)), (BOB,))]
            if name == "lamp"
            else []
        )

    def folders(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]:
        return ["A/b", "A/c"]

    labels = folders

    def expiring(self, since: datetime, until: datetime, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[UUID]:
        return ()

    def conversation(self, message: UUID, mailboxes: frozenset[UUID]) -> tuple[UUID | None, Sequence[UUID] | None]:
        return None, None


def searches(query: str, mailboxes: frozenset[UUID] | None = None, *, exact: bool = False) -> tuple[Search, ...]:
    return compile_query(parse(query, datetime(2024, 1, 1, tzinfo=UTC), UTC), query, KnownNames(), mailboxes, exact=exact)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [Search("", "")]),
        ("a b", [Search("a b", "")]),
        ('b "a c"', [Search('"a c" b', "")]),
        ("b -a", [Search('-"a" b', "")]),
        ("a OR b", [Search('"a"', ""), Search('-"a" "b"', "")]),
        ("c (a OR b)", [Search('"a" c', ""), Search('-"a" "b" c', "")]),
        ("a OR from:x", [Search('"a"', ""), Search('-"a"', 'from_is = "x"')]),
        ("from:x OR to:y", [Search("", 'from_is = "x" OR to_is = "y"')]),
        ("-(from:x to:y)", [Search("", 'NOT (from_is = "x" AND to_is = "y")')]),
        ('subject:"a b"', [Search('"a b"', "", ("subject",))]),
        ('subject:"a b" from:x', [Search('"a b"', 'from_is = "x"', ("subject",))]),
        ('subject:"a b" c', [Search("c", "", (), (Join('"a b"', ("subject",), True),))]),
        ('-subject:"a b"', [Search("", "", (), (Join('"a b"', ("subject",), False),))]),
        ("from:@x.org", [Search("", 'from_is = "@x.org"')]),
        ("from:*@x.org", [Search("", 'from_is = "@x.org"')]),
        ("from:al*", [Search("", 'from_is = "al@x"')]),
        ('from:"Al <a@x>"', [Search("", 'from_is = "a@x"')]),
        ("filename:*.PDF", [Search("", 'filename_is = ".pdf"')]),
        ("in:inbox", [Search("", 'any_folder = "inbox"')]),
        ("mailbox:alice in:inbox", [Search("", f'mailbox = "{ALICE}" AND folder = "{ALICE}/inbox"')]),
        ("mailbox:alice OR in:inbox", [Search("", f'mailbox = "{ALICE}" OR any_folder = "inbox"')]),
        ("source:work", [Search("", f'source = "{WORK}"')]),
        ("in:a/*", [Search("", 'any_folder IN ["A/b", "A/c"]')]),
        ('in:"a\\" OR x', [Search('"x"', ""), Search('-"x"', 'any_folder = "a%5c"')]),
        ("larger:1K on:2024", [Search("", "size > 1024 AND date >= 1704067200 AND date < 1735689600")]),
        ("a -a2 -(a2)", [Search('-"a2" a', "")]),
        ('"a" -"a"', []),
    ],
)
def test_what_is_asked(query: str, expected: list[Search]) -> None:
    assert list(searches(query)) == expected


def test_only_what_may_be_seen_is_asked_for() -> None:
    bob = frozenset({BOB})
    assert searches("in:inbox", bob) == (Search("", f'mailbox = "{BOB}" AND folder = "{BOB}/inbox"'),)
    assert searches("source:work x", bob) == (Search("x", f'mailbox = "{BOB}"'),)
    assert searches("", frozenset()) == ()
    assert searches("-in:inbox OR x", frozenset()) == ()
    with pytest.raises(QueryError, match="that you can see"):
        searches("mailbox:alice", bob)


def test_exact_words_for_those_who_act_on_what_they_find() -> None:
    assert searches("a b", exact=True) == (Search('"a" "b"', ""),)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (" ".join(f"w{number}" for number in range(11)), "up to 10 words"),
        (" ".join(f"(a{number} OR b{number})" for number in range(6)), "32 combinations"),
        ("from:many*", "more than 10,000 addresses"),
        ("subject:a*", "is not supported"),
        ("filename:a*", "is not supported"),
        ("mailbox:nobody", "there is no mailbox nobody"),
        ("source:nothing", "there is no source nothing"),
    ],
)
def test_what_can_not_be_asked_is_said(query: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        searches(query)


def test_parts_have_nothing_in_common_and_are_the_whole() -> None:
    chance = random.Random(3)
    terms = [Term(letter, True) for letter in "abc"]
    filters = [Filter(letter) for letter in "xy"]
    for _ in range(300):
        expression = _random(chance, terms, filters, 4)
        parts = list(split(expression))
        for values in itertools.product([False, True], repeat=5):
            world: dict[Expression, bool] = dict(zip([*terms, *filters], values, strict=True))
            assert sum(_fits(part, world) for part in parts) == _true(expression, world), render(parts[0].filter)


def _random(chance: random.Random, terms: list[Term], filters: list[Filter], depth: int) -> Expression:
    kind = chance.choice(["term", "filter", "all", "some", "no"]) if depth else chance.choice(["term", "filter"])
    if kind == "term":
        return chance.choice(terms)
    if kind == "filter":
        return chance.choice(filters)
    if kind == "no":
        return No(_random(chance, terms, filters, depth - 1))
    parts = tuple(_random(chance, terms, filters, depth - 1) for _ in range(chance.randint(0, 3)))
    return All(parts) if kind == "all" else Some(parts)


def _fits(part: QueryPart, world: dict[Expression, bool]) -> bool:
    found = all(world[term] for term in part.found) and not any(world[term] for term in part.missing)
    return found and _true(part.filter, world)


def _true(expression: Expression, world: dict[Expression, bool]) -> bool:
    match expression:
        case No(inner):
            return not _true(inner, world)
        case All(parts):
            return all(_true(part, world) for part in parts)
        case Some(parts):
            return any(_true(part, world) for part in parts)
    return world[expression]


def test_a_hold_is_what_it_is_on_and_only_readers_of_everything_see_it() -> None:
    people = " OR ".join(f'{role}_is = "eve@x.org"' for role in ("from", "to", "cc", "bcc", "people"))
    on = f'mailbox = "{ALICE}" OR id = "{BOB}" OR {people}'
    assert searches("hold:lamp") == (Search('"deal"', ""), Search('-"deal"', on))
    assert searches("hold:la*") == ()
    for query, mailboxes in (("hold:other", None), ("hold:lamp", frozenset({ALICE}))):
        with pytest.raises(QueryError, match="there is no hold"):
            searches(query, mailboxes)


def test_tags_are_those_of_the_reader_and_notes_have_a_limit() -> None:
    def compiled(query: str, reader: int) -> tuple[Search, ...]:
        return compile_query(
            parse(query, datetime(2024, 1, 1, tzinfo=UTC), UTC), query, KnownNames(), None, reader=UUID(int=reader)
        )

    assert [search.filter for search in compiled("tag:mine", 1)] == [f'id = "{UUID(int=7)}"']
    assert compiled("tag:mine", 2) == ()
    with pytest.raises(QueryError, match="more than 100,000 messages have note:everywhere"):
        compiled("note:everywhere", 1)
