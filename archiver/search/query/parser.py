"""Parses the text of a query into its tree.

query   = { joined }                          all of them
joined  = negated { "OR" negated }            OR joins its two neighbours, as in Gmail: a b OR c is a (b OR c)
negated = [ "-" | "NOT" ] term
term    = "(" query ")" | operator ":" ( value | "(" query ")" ) | '"' words '"' | word
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from difflib import get_close_matches

from archiver.search.query import values
from archiver.search.query.errors import QueryError
from archiver.search.query.syntax import (
    EVERYTHING,
    And,
    Expiry,
    Held,
    In,
    Node,
    NotQuery,
    Or,
    QuerySpan,
    Size,
    Text,
    Time,
    Value,
)
from archiver.search.words import words

MAX_CHARS = 4_000
MAX_DEPTH = 20

_IN = ("from", "to", "cc", "bcc", "participant", "subject", "filename")
_VALUE = ("has", "type", "list", "message-id", "sha256", "thread", "retention")
_HELD = ("in", "label", "mailbox", "source", "hold", "tag", "note")
_TIME = ("before", "after", "on", "older_than", "newer_than", "expires")
_SIZE = ("larger", "smaller")
OPERATORS = (*_IN, *_VALUE, *_HELD, *_TIME, *_SIZE)
_ALIASES = {
    "message_id": "message-id", "messageid": "message-id", "rfc822msgid": "message-id", "folder": "in", "since": "after",
    "until": "before", "older-than": "older_than", "newer-than": "newer_than", "older": "before", "newer": "after",
    "bigger": "larger", "size": "larger", "larger_than": "larger", "smaller_than": "smaller", "attachment": "filename",
    "file": "filename", "sender": "from", "recipient": "to", "with": "participant", "filetype": "type", "hash": "sha256",
    "account": "mailbox", "date": "on", "title": "subject",
}  # fmt: skip
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<open>\() | (?P<close>\))
      | (?P<minus>-)(?=[^\s\-)])
      | (?P<operator>[A-Za-z][A-Za-z0-9_-]{0,30}):
      | (?P<quote>["\u201c\u201d\u201e])
      | (?P<word>[^\s()"\u201c\u201d\u201e]+)
    )""",
    re.VERBOSE,
)
_VALUE_TEXT = re.compile(r'[^\s()"\u201c\u201d\u201e]+')
_CLOSING = re.compile('["\u201c\u201d]')
_SIGNS_ONLY = re.compile(r"[\x00-\x7f\u2010-\u2027\u00b7\u00a7\u00ab\u00bb]*")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def place(self) -> QuerySpan:
        return QuerySpan(self.start, self.end)


def parse(text: str, now: datetime, zone: tzinfo) -> Node:
    """The tree of a query; EVERYTHING for an empty one. Raises QueryError with the position of the error."""
    if len(text) > MAX_CHARS:
        raise QueryError(f"the query has {len(text):,} characters; the limit is {MAX_CHARS:,}")
    return _Parser(text, now, zone).parse()


class _Parser:
    """Recursive descent, one method per rule. Tokens are cut as they are needed."""

    def __init__(self, text: str, now: datetime, zone: tzinfo) -> None:
        self._text = text
        self._now = now
        self._zone = zone
        self._at = 0
        self._depth = 0
        self._next = self._cut()

    def parse(self) -> Node:
        found = self._query(None)
        if self._next is not None:
            raise self._error("this closing parenthesis has no opening one", self._next)
        return found

    def _query(self, operator: str | None) -> Node:
        parts: list[Node] = []
        while self._next is not None and self._next.kind != "close":
            joined = self._join(operator)
            if joined is not None:
                parts.append(joined)
        return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else EVERYTHING

    def _join(self, operator: str | None) -> Node | None:
        if self._is_word("AND"):
            self._take()
            return None
        first = self._negate(operator)
        parts = [] if first is None else [first]
        while self._is_word("OR"):
            sign = self._take()
            following = None if self._ends() else self._negate(operator)
            if not parts or following is None:
                raise self._error("OR must be between two terms", sign)
            parts.append(following)
        return None if not parts else parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _ends(self) -> bool:
        return self._next is None or self._next.kind == "close" or self._is_word("OR", "AND")

    def _negate(self, operator: str | None) -> Node | None:
        if self._is_word("OR"):
            raise self._error("OR must be between two terms", self._take())
        if self._next is None or not (self._next.kind == "minus" or self._is_word("NOT")):
            return self._term(operator)
        sign = self._take()
        if self._ends():
            raise self._error(f"{sign.text} must be followed directly by what to exclude", sign)
        inner = self._negate(operator)
        if isinstance(inner, Text) and not inner.exact:
            inner = Text(inner.text, True, inner.place)
        return None if inner is None else NotQuery(inner)

    def _term(self, operator: str | None) -> Node | None:
        token = self._take()
        if token.kind == "open":
            return self._group(token, operator)
        if token.kind == "operator":
            if operator is not None:
                raise self._error(f"{operator}:( ) can't contain another operator", token)
            return self._operator(token)
        if token.kind == "quote":
            return self._leaf(operator, token.text, token.place) if operator else self._phrase(token)
        return self._leaf(operator, token.text, token.place) if operator else self._word(token)

    def _group(self, opening: _Token, operator: str | None) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"parentheses are nested more than {MAX_DEPTH} deep", opening)
        found = self._query(operator)
        if self._next is None:
            raise self._error("this parenthesis is not closed", opening)
        closing = self._take()
        if found == EVERYTHING:
            raise QueryError("these parentheses are empty", self._text, opening.start, closing.end)
        self._depth -= 1
        return found

    def _operator(self, token: _Token) -> Node:
        name = token.text.lower()
        if name not in OPERATORS:
            raise self._unknown(token, name)
        if self._at < len(self._text) and self._text[self._at] == "(":
            self._next = self._cut()
            return self._group(self._take(), name)
        place, text = self._value(token, name)
        return self._leaf(name, text, place)

    def _value(self, token: _Token, name: str) -> tuple[QuerySpan, str]:
        """The text directly after the colon."""
        if self._text[self._at : self._at + 1] and self._text[self._at] in '"\u201c\u201d\u201e':
            text, end = self._quote(self._at)
        else:
            match = _VALUE_TEXT.match(self._text, self._at)
            text, end = (match[0], match.end()) if match else ("", self._at)
        place = QuerySpan(token.start, end)
        if not text.strip():
            raise QueryError(f"{name}: needs a value directly after the colon", self._text, place.start, place.end)
        self._at = end
        self._next = self._cut()
        return place, text

    def _leaf(self, name: str, text: str, place: QuerySpan) -> Node:
        try:
            return self._check_value(name, text.strip(), place)
        except values.BadValue as error:
            raise QueryError(f"{name}:{text} is not valid: {error}", self._text, place.start, place.end) from None

    def _check_value(self, name: str, text: str, place: QuerySpan) -> Node:
        if name in _IN:
            if not words(text) and text != "*":
                raise values.BadValue("it contains no word")
            return In(name, text, place)
        if name in _HELD:
            return Held(name, text, place)
        if name in _SIZE:
            return Size(name == "larger", values.size(text), place)
        if name == "expires":
            return Expiry(*values.coming(text, self._now, self._zone), place)
        if name in ("older_than", "newer_than"):
            moment = values.ago(text, self._now, self._zone)
            return Time(None, moment, place) if name == "older_than" else Time(moment, None, place)
        if name in _TIME:
            start, end = values.period(text, self._now, self._zone)
            return Time(
                None if name == "before" else start, start if name == "before" else end if name == "on" else None, place
            )
        return Value(name, self._exact(name, text), place)

    def _exact(self, name: str, text: str) -> str:
        if name == "sha256":
            return values.sha256(text)
        if name == "thread":
            return values.thread(text)
        if name == "has":
            if text.lower() not in ("attachment", "attachments"):
                raise values.BadValue("expected has:attachment")
            return "attachment"
        if name == "retention":
            return text.lower()
        if name == "type":
            return text.lower().removesuffix("/*").lstrip(".")
        return text.strip("<>").strip() or text

    def _phrase(self, token: _Token) -> Node:
        if not words(token.text):
            raise self._error("these quotation marks contain no word", token)
        return Text(token.text, True, token.place)

    def _word(self, token: _Token) -> Node | None:
        found = words(token.text)
        if "*" in token.text and found:
            reason = "* works in addresses, file names, folders, labels, mailboxes and sources, but not in words"
            raise self._error(f"{reason}; a word also finds longer words that begin with it", token)
        if not found:
            if _SIGNS_ONLY.fullmatch(token.text):
                return None  # a dash between words, an ampersand
            raise self._error(f"`{token.text}` contains no letter or digit and can't be searched for", token)
        return Text(token.text, len(found) > 1, token.place)

    def _unknown(self, token: _Token, name: str) -> QueryError:
        close = get_close_matches(name, [*OPERATORS, *_ALIASES], 1, 0.7)
        guess = _ALIASES.get(name) or (_ALIASES.get(close[0], close[0]) if close else None)
        hint = f"did you mean {guess}: ?" if guess else 'to search for it as text, put it in "quotation marks"'
        return QueryError(f"there is no operator {token.text}: ({hint})", self._text, token.start, token.end)

    def _is_word(self, *names: str) -> bool:
        return self._next is not None and self._next.kind == "word" and self._next.text in names

    def _take(self) -> _Token:
        token = self._next
        assert token is not None
        if token.kind != "operator":  # its value follows other rules
            self._next = self._cut()
        return token

    def _cut(self) -> _Token | None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self._at = len(self._text)
            return None
        kind = match.lastgroup or ""
        start = match.start(kind)
        if kind == "quote":
            text, self._at = self._quote(start)
            return _Token("quote", text, start, self._at)
        self._at = match.end()
        return _Token(kind, match[kind], start, self._at)

    def _quote(self, start: int) -> tuple[str, int]:
        closing = _CLOSING.search(self._text, start + 1)
        if closing is None:
            raise QueryError("this quotation mark is not closed", self._text, start)
        return self._text[start + 1 : closing.start()], closing.end()

    def _error(self, reason: str, token: _Token) -> QueryError:
        return QueryError(reason, self._text, token.start, token.end)
