"""Compiles a filter tree to a Tantivy query. Filters are exact: a filter matches everything that fits and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import inf, nextafter
from operator import ge, gt, le, lt

import tantivy
from tantivy import Occur, Query

from archiver.search_server.index.document_fields import canonical_number
from archiver.search_server.index.text import fold_value
from archiver.search_server.query.filter_grammar import AllOf, Among, AnyOf, Between, Compare, Filter, Is, NotFilter

_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_MARKS = {"EXISTS": "e", "NULL": "n", "EMPTY": "y"}
_REGEX_SIGNS = re.compile(r"([\\.+*?()|\[\]{}^$#&\-~/])")
_MAX_VALUES = 10_000_000
_FEW_VALUES = 32  # up to this many terms, their postings are joined; a term set would have to build an automaton first
_HOLDS: dict[str, Callable[[str, str], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


@dataclass(frozen=True, slots=True)
class FilterCompiler:
    """Compiles for one snapshot of one index. `attribute` checks a name and returns its short id (None: in no document)."""

    index: tantivy.Index
    searcher: tantivy.Searcher
    schema: tantivy.Schema
    attribute: Callable[[str], str | None]

    def compile(self, tree: Filter) -> Query:
        match tree:
            case AllOf(parts):
                return Query.boolean_query([(Occur.Must, self.compile(part)) for part in parts])
            case AnyOf(parts):
                return Query.boolean_query([(Occur.Should, self.compile(part)) for part in parts])
            case NotFilter(inner):
                return negated(self.compile(inner))
            case Compare(name, operator, value):
                return self._compare(self.attribute(name), operator, value)
            case Between(name, low, high):
                return self._between(self.attribute(name), low, high)
            case Among(name, values):
                return self._among(self.attribute(name), values)
            case Is(name, state):
                found = self.attribute(name)
                return Query.empty_query() if found is None else self._term("m", f"{_MARKS[state]}:{found}")

    def _compare(self, name: str | None, operator: str, value: str) -> Query:
        if operator == "!=":
            return negated(self._compare(name, "=", value))
        if name is None:
            return Query.empty_query()
        if operator == "=":
            return self._among(name, (value,))
        if operator == "STARTS WITH":
            return Query.fuzzy_term_query(self.schema, f"f.{name}", f"s{fold_value(value)}", 0, True, True)
        if operator == "CONTAINS":
            return self._contains(name, fold_value(value))
        number = as_number(value)
        if number is None:
            bound, holds = fold_value(value), _HOLDS[operator]
            return self._texts(name, lambda text: holds(text, bound))
        if operator in (">", ">="):
            return self._range(name, f"{'{' if operator == '>' else '['}{_shown(number)} TO *}}")
        return self._range(name, f"[* TO {_shown(number)}{'}' if operator == '<' else ']'}")

    def _between(self, name: str | None, low: str, high: str) -> Query:
        if name is None:
            return Query.empty_query()
        first, last = as_number(low), as_number(high)
        if first is None or last is None:
            start, end = fold_value(low), fold_value(high)
            return self._texts(name, lambda text: start <= text <= end)
        return self._range(name, _bounds(first, last)) if first <= last else Query.empty_query()

    def _range(self, name: str, bounds: str) -> Query:
        return self.index.parse_query(f"f.{name}:{bounds}")

    def _among(self, name: str | None, values: tuple[str, ...]) -> Query:
        if name is None or not values:
            return Query.empty_query()
        terms: list[str | float] = [f"s{fold_value(value)}" for value in values]
        terms.extend(canonical_number(number) for number in map(as_number, values) if number is not None)
        if len(terms) == 1:
            return self._term(f"f.{name}", terms[0])
        if len(terms) <= _FEW_VALUES:
            return Query.boolean_query([(Occur.Should, self._term(f"f.{name}", term)) for term in dict.fromkeys(terms)])
        return Query.term_set_query(self.schema, f"f.{name}", terms)

    def _contains(self, name: str, part: str) -> Query:
        return self._texts(name, lambda text: part in text, include="s.*" + _REGEX_SIGNS.sub(r"\\\1", part) + ".*")

    def _texts(self, name: str, fits: Callable[[str], bool], include: str | None = None) -> Query:
        """Documents with a matching text. Inspects each distinct text of the attribute once."""
        terms: dict[str, object] = {"field": f"f.{name}", "size": _MAX_VALUES}
        if include is not None:
            terms["include"] = include
        buckets = self.searcher.aggregate(Query.all_query(), {"values": {"terms": terms}})["values"]["buckets"]
        keys = [bucket["key"] for bucket in buckets if isinstance(bucket["key"], str) and fits(bucket["key"][1:])]
        return Query.term_set_query(self.schema, f"f.{name}", keys) if keys else Query.empty_query()

    def _term(self, field: str, value: str | float) -> Query:
        return Query.term_query(self.schema, field, value, "basic")


def negated(query: Query) -> Query:
    return Query.boolean_query([(Occur.Must, Query.all_query()), (Occur.MustNot, query)])


def as_number(value: str) -> float | None:
    """The value as a finite number, if it is one."""
    if not _NUMBER.fullmatch(value.strip()):
        return None
    number = float(value)
    return number if abs(number) != float("inf") else None


def _bounds(first: float, last: float) -> str:
    """Both included. Tantivy panics when one bound is whole and the other is not: then the whole one is replaced by its
    neighbour among the floats, excluded, which means the same."""
    if first.is_integer() == last.is_integer():
        return f"[{_shown(first)} TO {_shown(last)}]"
    if first.is_integer():
        return f"{{{_shown(nextafter(first, -inf))} TO {_shown(last)}]"
    return f"[{_shown(first)} TO {_shown(nextafter(last, inf))}}}"


def _shown(number: float) -> str:
    """A number in Tantivy's query language: all its digits, without an exponent."""
    return format(Decimal(number), "f")
