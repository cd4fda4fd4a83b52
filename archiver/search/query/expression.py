"""Boolean expressions over filters and texts, split into parts that a search engine can answer.

A filter can combine anything with AND, OR and NOT; the text of a search can only mean "all of these, none of those". So an
expression is split by its texts: messages that match the first text and the rest of the expression given that, and messages
that do not match it and the rest given that. No message is in two parts, so totals and facets can simply be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition in the filter language of the engine."""

    text: str


@dataclass(frozen=True, slots=True)
class Term:
    """Text to search for in these attributes, or in all: an exact phrase, or a word that tolerates typos."""

    text: str
    exact: bool
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class No:
    inner: Expression


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Some:
    parts: tuple[Expression, ...]


Expression = Filter | Term | No | All | Some
TRUE = All(())
FALSE = Some(())


@dataclass(frozen=True, slots=True)
class QueryPart:
    """All of `found`, none of `missing`, and a filter."""

    found: tuple[Term, ...]
    missing: tuple[Term, ...]
    filter: Expression


def all_of(parts: list[Expression]) -> Expression:
    parts = list(dict.fromkeys(part for part in parts if part != TRUE))
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def some_of(parts: list[Expression]) -> Expression:
    parts = list(dict.fromkeys(part for part in parts if part != FALSE))
    if TRUE in parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Some(tuple(parts))


def no(inner: Expression) -> Expression:
    if isinstance(inner, No):
        return inner.inner
    return FALSE if inner == TRUE else TRUE if inner == FALSE else No(inner)


def split(expression: Expression, found: tuple[Term, ...] = (), missing: tuple[Term, ...] = ()) -> Iterator[QueryPart]:
    """Disjoint parts that together equal the expression."""
    if expression == FALSE:
        return
    term = _first_term(expression)
    if term is None:
        yield QueryPart(found, missing, expression)
        return
    yield from split(_with(expression, lambda one: TRUE if one == term else None), (*found, term), missing)
    yield from split(_with(expression, lambda one: FALSE if one == term else None), found, (*missing, term))


def rewrite(expression: Expression, change: Callable[[Term], Term]) -> Expression:
    return _with(expression, change)


def render(expression: Expression) -> str:
    """The filter in the engine's syntax; empty for TRUE."""
    match expression:
        case Filter(text):
            return text
        case No(inner):
            return f"NOT ({render(inner)})"
        case All(parts):
            return " AND ".join(f"({render(part)})" if isinstance(part, Some) else render(part) for part in parts)
        case Some(parts):
            return " OR ".join(f"({render(part)})" if isinstance(part, All) else render(part) for part in parts)
        case Term():
            raise AssertionError("a text is not a filter")


def _first_term(expression: Expression) -> Term | None:
    match expression:
        case Term():
            return expression
        case No(inner):
            return _first_term(inner)
        case All(parts) | Some(parts):
            return next((term for term in map(_first_term, parts) if term is not None), None)
    return None


def _with(expression: Expression, change: Callable[[Term], Expression | None]) -> Expression:
    match expression:
        case Term():
            changed = change(expression)
            return expression if changed is None else changed
        case No(inner):
            return no(_with(inner, change))
        case All(parts):
            return all_of([_with(part, change) for part in parts])
        case Some(parts):
            return some_of([_with(part, change) for part in parts])
    return expression
