"""From a filter tree to a Tantivy query. Filters are exact: what a filter matches is all that fits and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import tantivy
from tantivy import Occur, Query

from archiver.search.embedded.filter_grammar import AllOf, Among, AnyOf, Between, Compare, Filter, Is, Not
from archiver.search.embedded.rows import canonical_number
from archiver.search.embedded.text import fold_value

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MARKS = {"EXISTS": "e", "NULL": "n", "EMPTY": "y"}
_REGEX_SIGNS = re.compile(r"([\\.+*?()|\[\]{}^$#&\-~/])")
_MAX_CONTAINS = 1_000_000


@dataclass(frozen=True, slots=True)
class FilterCompiler:
    """Compiles for one snapshot of one index. `attribute` checks a name and gives its short id (None: in no document)."""

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
            case Not(inner):
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
        # every text starts with s: the range of texts begins at `s` and ends before `t`
        shown, first, last = (_shown(number), "*", "*") if number is not None else (_quoted(f"s{fold_value(value)}"), "s", "t")
        if operator in (">", ">="):
            return self._range(name, f"{'{' if operator == '>' else '['}{shown} TO {last}}}")
        return self._range(name, f"[{first} TO {shown}{'}' if operator == '<' else ']'}")

    def _between(self, name: str | None, low: str, high: str) -> Query:
        if name is None:
            return Query.empty_query()
        numbers = as_number(low), as_number(high)
        if numbers[0] is not None and numbers[1] is not None:
            return self._range(name, f"[{_shown(numbers[0])} TO {_shown(numbers[1])}]")
        return self._range(name, f"[{_quoted('s' + fold_value(low))} TO {_quoted('s' + fold_value(high))}]")

    def _range(self, name: str, bounds: str) -> Query:
        return self.index.parse_query(f"f.{name}:{bounds}")

    def _among(self, name: str | None, values: tuple[str, ...]) -> Query:
        if name is None or not values:
            return Query.empty_query()
        terms: list[str | float] = [f"s{fold_value(value)}" for value in values]
        terms.extend(canonical_number(number) for number in map(as_number, values) if number is not None)
        if len(terms) == 1:
            return self._term(f"f.{name}", terms[0])
        return Query.term_set_query(self.schema, f"f.{name}", terms)

    def _contains(self, name: str, part: str) -> Query:
        pattern = "s.*" + _REGEX_SIGNS.sub(r"\\\1", part) + ".*"
        request = {"values": {"terms": {"field": f"f.{name}", "size": _MAX_CONTAINS, "include": pattern}}}
        buckets = self.searcher.aggregate(Query.all_query(), request)["values"]["buckets"]
        values = [bucket["key"] for bucket in buckets if isinstance(bucket["key"], str)]
        return Query.term_set_query(self.schema, f"f.{name}", values) if values else Query.empty_query()

    def _term(self, field: str, value: str | float) -> Query:
        return Query.term_query(self.schema, field, value, "basic")


def negated(query: Query) -> Query:
    return Query.boolean_query([(Occur.Must, Query.all_query()), (Occur.MustNot, query)])


def as_number(value: str) -> float | None:
    """The value as a finite number, if it reads as one."""
    if not _NUMBER.fullmatch(value.strip()):
        return None
    number = float(value)
    return number if abs(number) != float("inf") else None


def _shown(number: float) -> str:
    """A number as Tantivy's query language reads it: no exponent."""
    return str(int(number)) if number.is_integer() and abs(number) < 2**63 else format(number, ".17f")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
