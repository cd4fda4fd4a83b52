"""The tree of a query. Every leaf knows its position in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QuerySpan:
    """A position in the text of the query."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """A bare word (`exact` is false: typos and longer words match too), or a phrase."""

    text: str
    exact: bool
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """`subject:`, `filename:`, `from:`, …: text in one part of the message."""

    operator: str
    value: str
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class Value:
    """An operator with one exact, validated value: `has:`, `type:`, `list:`, `message-id:`, `sha256:`, `thread:`."""

    operator: str
    value: str
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class Held:
    """Where copies are: `in:`, `label:`, `mailbox:`, `source:`; the legal `hold:` that they are on; the reader's `tag:` and
    `note:`."""

    operator: str
    value: str
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class Size:
    """More or fewer bytes than this."""

    larger: bool
    size_bytes: int
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class Time:
    """From one moment (inclusive) until another (exclusive)."""

    since: datetime | None
    until: datetime | None
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class Expiry:
    """`expires:`: a policy deletes it from a moment in this time on."""

    since: datetime
    until: datetime
    place: QuerySpan = field(compare=False)


@dataclass(frozen=True, slots=True)
class NotQuery:
    """Everything that the inner query does not match."""

    inner: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of its parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of its parts."""

    parts: tuple[Node, ...]


Leaf = Text | In | Value | Held | Size | Time | Expiry
Node = Leaf | NotQuery | And | Or
EVERYTHING = And(())


def has_bare_words(tree: Node) -> bool:
    """Whether words are in it that may match with typos or longer forms."""
    match tree:
        case And(parts) | Or(parts):
            return any(map(has_bare_words, parts))
        case NotQuery(inner):
            return has_bare_words(inner)
        case Text(_, exact):
            return not exact
    return False
