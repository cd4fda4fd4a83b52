"""The tree of a query. Every leaf knows where it stands in the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in the text of the query."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """A bare word (`exact` is false: typos and longer words are forgiven), or words that stand side by side."""

    text: str
    exact: bool
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """`subject:`, `filename:`, `from:`, …: what is looked for in one part of the message."""

    operator: str
    value: str
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Value:
    """An operator with one exact value, checked: `has:`, `type:`, `list:`, `message-id:`, `sha256:`, `thread:`."""

    operator: str
    value: str
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Held:
    """Where copies lie: `in:`, `label:`, `mailbox:`, `source:`."""

    operator: str
    value: str
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Size:
    """More or fewer bytes than this."""

    larger: bool
    size_bytes: int
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Time:
    """From a moment on, and before another one."""

    since: datetime | None
    until: datetime | None
    place: Place = field(compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Everything that the inner query does not match."""

    inner: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of them, or several."""

    parts: tuple[Node, ...]


Leaf = Text | In | Value | Held | Size | Time
Node = Leaf | Not | And | Or
EVERYTHING = And(())
