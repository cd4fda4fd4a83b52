"""Parses the filter language: a text, or arrays of texts, to a tree. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 150
_KEYWORDS = frozenset({"AND", "OR", "NOT", "TO", "IN", "EXISTS", "IS", "NULL", "EMPTY", "CONTAINS", "STARTS", "WITH"})
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<op>!=|>=|<=|=|>|<|\(|\)|\[|\]|,)
      | "(?P<double>(?:[^"\\]|\\.)*)"
      | '(?P<single>(?:[^'\\]|\\.)*)'
      | (?P<word>[\w\-./]+)
      | (?P<bad>\S)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class FilterError(ValueError):
    """The filter is invalid; the message says where."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`attribute = value` and its relatives (`=`, `!=`, `>`, `>=`, `<`, `<=`, `CONTAINS`, `STARTS WITH`)."""

    attribute: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Between:
    """`attribute low TO high`, both included."""

    attribute: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Among:
    """`attribute IN [values]`."""

    attribute: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Is:
    """`attribute EXISTS`, `IS NULL`, `IS EMPTY`."""

    attribute: str
    state: str


@dataclass(frozen=True, slots=True)
class NotFilter:
    """Everything that the inner filter does not match."""

    inner: Filter


@dataclass(frozen=True, slots=True)
class AllOf:
    """`AND`."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`OR`."""

    parts: tuple[Filter, ...]


Filter = Compare | Between | Among | Is | NotFilter | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


def parse_filter(value: Any) -> Filter | None:
    """Parses the filter of a request: a text, or an array (AND) of texts and arrays (OR). None for an empty filter."""
    if value is None:
        return None
    if isinstance(value, str):
        return _Parser(value).parse() if value.strip() else None
    if not isinstance(value, list):
        raise FilterError("Invalid syntax for the filter parameter: expected String or Array.")
    parts = [part for part in map(_alternatives, value) if part is not None]
    return _join(AllOf, parts)


def _alternatives(value: Any) -> Filter | None:
    if isinstance(value, str):
        return parse_filter(value)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FilterError("Invalid syntax for the filter parameter: expected String or an array of Strings in the inner array.")
    parts = [part for part in map(parse_filter, value) if part is not None]
    return _join(AnyOf, parts)


def _join(kind: type[AllOf | AnyOf], parts: list[Filter]) -> Filter | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


class _Parser:
    """Recursive descent, one method per rule."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Filter:
        found = self._any_of()
        rest = self._peek()
        if rest is not None:
            raise self._error("Found unexpected characters at the end of the filter", rest)
        return found

    def _any_of(self) -> Filter:
        parts = [self._all_of()]
        while self._take_word("OR"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all_of(self) -> Filter:
        parts = [self._negate()]
        while self._take_word("AND"):
            parts.append(self._negate())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negate(self) -> Filter:
        negations = 0
        while self._take_word("NOT"):
            negations += 1
        found = self._primary()
        return NotFilter(found) if negations % 2 else found

    def _primary(self) -> Filter:
        if not self._take_op("("):
            return self._condition()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"The filter is nested more than {MAX_DEPTH} levels deep.")
        found = self._any_of()
        if not self._take_op(")"):
            raise self._error("Expression is missing the following closing delimiter: `)`", self._peek())
        self._depth -= 1
        return found

    def _condition(self) -> Filter:
        attribute = self._value("an attribute")
        if attribute.startswith(("_geo", "_vectors")):
            raise FilterError(
                f"`{attribute}` can't be filtered in the embedded search server: geo and vector search are not available."
            )
        token = self._peek()
        if token is not None and token.kind == "op" and token.text in ("=", "!=", ">", ">=", "<", "<="):
            self._next += 1
            return Compare(attribute, token.text, self._value("a value"))
        negated = self._take_word("NOT")
        found = self._worded(attribute, negated=negated)
        return NotFilter(found) if negated else found

    def _worded(self, attribute: str, *, negated: bool) -> Filter:
        if self._take_word("IN"):
            return Among(attribute, self._list())
        if self._take_word("EXISTS"):
            return Is(attribute, "EXISTS")
        if self._take_word("CONTAINS"):
            return Compare(attribute, "CONTAINS", self._value("a value"))
        if self._take_word("STARTS"):
            if not self._take_word("WITH"):
                raise self._error("Was expecting `WITH` after `STARTS`", self._peek())
            return Compare(attribute, "STARTS WITH", self._value("a value"))
        if negated:
            raise self._error("Was expecting `IN`, `EXISTS`, `CONTAINS` or `STARTS WITH` after `NOT`", self._peek())
        if self._take_word("IS"):
            return self._state(attribute)
        token = self._peek()
        if token is not None and token.kind in ("word", "text") and not _is_keyword(token):
            low = self._value("a value")
            if self._take_word("TO"):
                return Between(attribute, low, self._value("a value"))
        raise self._error(
            "Was expecting an operation `=`, `!=`, `>=`, `>`, `<=`, `<`, `IN`, `NOT IN`, `TO`, `EXISTS`, `NOT EXISTS`,"
            f" `IS NULL`, `IS NOT NULL`, `IS EMPTY`, `IS NOT EMPTY`, `CONTAINS` or `STARTS WITH` at `{attribute}`",
            self._peek(),
        )

    def _state(self, attribute: str) -> Filter:
        negated = self._take_word("NOT")
        for state in ("NULL", "EMPTY"):
            if self._take_word(state):
                return NotFilter(Is(attribute, state)) if negated else Is(attribute, state)
        raise self._error("Was expecting `NULL` or `EMPTY` after `IS`", self._peek())

    def _list(self) -> tuple[str, ...]:
        if not self._take_op("["):
            raise self._error("Expected `[` after `IN` keyword", self._peek())
        values: list[str] = []
        while not self._take_op("]"):
            if values and not self._take_op(","):
                raise self._error("Expected only comma-separated field names inside `IN[..]`", self._peek())
            if values and self._take_op("]"):
                break
            values.append(self._value("a value"))
        return tuple(values)

    def _value(self, what: str) -> str:
        token = self._peek()
        if token is None or token.kind == "op":
            raise self._error(f"Was expecting {what}", token)
        if _is_keyword(token):
            raise self._error(
                f"Was expecting {what} but found the reserved keyword `{token.text}`; put it inside quotes", token
            )
        self._next += 1
        return token.text

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take_word(self, word: str) -> bool:
        return self._take("word", word)

    def _take_op(self, sign: str) -> bool:
        return self._take("op", sign)

    def _take(self, kind: str, text: str) -> bool:
        token = self._peek()
        if token is not None and token.kind == kind and token.text == text:
            self._next += 1
            return True
        return False

    def _error(self, message: str, token: _Token | None) -> FilterError:
        start = token.place if token else len(self._text)
        return FilterError(f"{message}.\n{start + 1}:{len(self._text) + 1} {self._text}")


def _is_keyword(token: _Token) -> bool:
    return token.kind == "word" and token.text in _KEYWORDS


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            break
        kind = match.lastgroup or "bad"
        found = match.group(kind)
        if kind == "bad":
            what = "a missing closing delimiter" if found in "\"'" else "an unexpected character"
            raise FilterError(f"Found {what}: `{found}`.\n{match.start(kind) + 1}:{len(text) + 1} {text}")
        if kind in ("double", "single"):
            tokens.append(_Token("text", _ESCAPED.sub(r"\1", found), match.start(kind)))
        else:
            tokens.append(_Token(kind, found, match.start(kind)))
        place = match.end()
    return tokens
