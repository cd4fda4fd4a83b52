"""Compiles the tree of a query into equivalent searches, for a reader who may see certain mailboxes.

Each search is one request to the engine, and no message is found by two of them. Single words of a field become filters; a
phrase is searched for in that field; where a search needs both a phrase in a field and other text, the ids come from a separate
search (`Join`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, Protocol
from uuid import UUID

from archiver.search.document import PEOPLE
from archiver.search.query import expression as boolean
from archiver.search.query.errors import QueryError
from archiver.search.query.expression import FALSE, Expression, Filter, QueryPart, Term, all_of, no, some_of
from archiver.search.query.syntax import And, Expiry, Held, In, Leaf, Node, NotQuery, Or, QuerySpan, Size, Text, Time, Value
from archiver.search.tokens import copy_token, token
from archiver.search.words import WORD, words

MAX_SEARCHES: Final = 32
MAX_TERMS: Final = 10  # Meilisearch uses ten words of a search and drops the others
MAX_VALUES: Final = 10_000
MAX_MARKED: Final = 100_000

_EXCLUDED = re.compile(r'-"[^"]*"')
_ANGLE = re.compile(r"<([^<>\s@]++@[^<>\s]++)>")
_FIELDS = {"subject": ("subject", "subject_is"), "filename": ("filenames", "filename_is")}
_EXACT = {
    "has": "has", "type": "types", "message-id": "message_id", "sha256": "hashes", "thread": "thread", "list": "list",
    "retention": "retention",
}  # fmt: skip
_RECORDED = frozenset({"to", "cc", "bcc"})
_TYPES = {"word": "document", "excel": "spreadsheet", "powerpoint": "presentation", "photo": "image", "picture": "image"}


@dataclass(frozen=True, slots=True)
class HoldScope:
    """What a legal hold is on: the messages that fit any of these."""

    mailbox_ids: frozenset[UUID]
    addresses: tuple[str, ...]
    query: Node | None
    message_ids: tuple[UUID, ...]
    """Those that were selected one by one."""


class Names(Protocol):
    """Lookups of addresses and visible names in the database. In patterns, `*` matches any characters."""

    def addresses(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]: ...
    def mailboxes(self, name: str) -> frozenset[UUID]: ...
    def sources(self, name: str) -> dict[UUID, frozenset[UUID]]: ...
    def folders(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]: ...
    def labels(self, pattern: str, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[str]: ...
    def holds(self, name: str) -> Sequence[HoldScope]: ...
    def tagged(self, pattern: str, reader: UUID | None, limit: int) -> Sequence[UUID]: ...
    def noted(self, text: str, reader: UUID | None, limit: int) -> Sequence[UUID]: ...
    def expiring(self, since: datetime, until: datetime, mailboxes: frozenset[UUID] | None, limit: int) -> Sequence[UUID]: ...
    def conversation(self, message: UUID, mailboxes: frozenset[UUID]) -> tuple[UUID | None, Sequence[UUID] | None]:
        """The conversation of a message as these mailboxes show it: a whole thread, or these messages."""


@dataclass(frozen=True, slots=True)
class Join:
    """Messages with this text in these attributes, which the search is limited to, or which it excludes."""

    text: str
    attributes: tuple[str, ...]
    wanted: bool


@dataclass(frozen=True, slots=True)
class Search:
    """One request to the engine."""

    text: str
    filter: str
    attributes: tuple[str, ...] = ()
    joins: tuple[Join, ...] = ()

    @property
    def finds_text(self) -> bool:
        """Whether the hits contain text to highlight, rather than only lack text."""
        return bool(_EXCLUDED.sub("", self.text).strip())


def compile_query(
    tree: Node,
    query: str,
    names: Names,
    mailboxes: frozenset[UUID] | None,
    *,
    exact: bool = False,
    reader: UUID | None = None,
    hidden_labels: Sequence[str] = (),
) -> tuple[Search, ...]:
    """The searches; none if nothing can match. `mailboxes`: the visible ones, None for no limit. `hidden_labels`: messages with
    these retention labels are not found.

    `exact`: bare words also match only exactly. `reader`: whose own tags and notes are searched, beside the shared ones.
    """
    expression = _Compiler(query, names, mailboxes, reader).node(tree, mailboxes)
    if mailboxes is not None:
        expression = all_of([_among("mailbox", map(str, mailboxes)), expression])
    if hidden_labels:
        expression = all_of([no(_among("retention", hidden_labels)), expression])
    parts = list(islice(boolean.split(expression), MAX_SEARCHES + 1))
    if len(parts) > MAX_SEARCHES:
        raise QueryError(f"the query has more than {MAX_SEARCHES} combinations of words; use fewer ORs between words")
    strict = {term for part in parts for term in part.found if exact or any(term not in one.found for one in parts)}
    return tuple(_search(part, strict) for part in parts)


def _search(part: QueryPart, strict: set[Term]) -> Search:
    """`strict`: words that not all parts search for. They match exactly, because otherwise parts would share messages."""
    anywhere = [term for term in part.found if not term.attributes]
    fields = [term for term in part.found if term.attributes]
    if len(part.found) > MAX_TERMS:
        raise QueryError(f"a search can have up to {MAX_TERMS} words; put a sentence in quotation marks")
    excluded = [term for term in part.missing if not term.attributes]
    attributes: tuple[str, ...] = ()
    if fields and not anywhere and not excluded:
        attributes = fields[0].attributes
        anywhere = [term for term in fields if term.attributes == attributes]
    joins = [Join(_quote(term), term.attributes, True) for term in fields if term.attributes != attributes]
    joins += [Join(_quote(term), term.attributes, False) for term in part.missing if term.attributes]
    exact = [term for term in anywhere if term.exact or term in strict]
    pieces = [f"-{_quote(term)}" for term in excluded] + [_quote(term) for term in exact]
    pieces += [WORD.findall(term.text)[0] for term in anywhere if term not in exact]
    return Search(" ".join(pieces), boolean.render(part.filter), attributes, tuple(joins))


class _Compiler:
    def __init__(self, query: str, names: Names, scope: frozenset[UUID] | None, reader: UUID | None) -> None:
        self._query = query
        self._names = names
        self._scope = scope
        self._reader = reader

    def node(self, tree: Node, visible: frozenset[UUID] | None) -> Expression:
        match tree:
            case And(parts):
                visible = self._narrow_mailboxes(parts, visible)
                return all_of([self.node(part, visible) for part in parts])
            case Or(parts):
                return some_of([self.node(part, visible) for part in parts])
            case NotQuery(inner):
                return no(self.node(inner, visible))
        return self._leaf(tree, visible)

    def _leaf(self, leaf: Leaf, visible: frozenset[UUID] | None) -> Expression:
        match leaf:
            case Text(text, exact):
                return Term(text, exact)
            case Size(larger, size_bytes):
                return Filter(f"size {'>' if larger else '<'} {size_bytes}")
            case Time():
                return _time(leaf)
            case Value("thread", value) if self._scope is not None:
                return self._thread(UUID(value), self._scope)
            case Value(operator, value):
                return _value(operator, value)
            case In(operator, value, place):
                return self._field(leaf, place) if operator in _FIELDS else self._person(operator, value, place, visible)
            case Expiry():
                return self._expiry(leaf, visible)
            case Held():
                return self._held(leaf, visible)

    def _expiry(self, leaf: Expiry, visible: frozenset[UUID] | None) -> Expression:
        found = self._names.expiring(leaf.since, leaf.until, visible, MAX_VALUES + 1)
        if len(found) > MAX_VALUES:
            raise self._error(f"more than {MAX_VALUES:,} messages expire in this time: ask for a shorter one", leaf.place)
        return _among("id", map(str, found))

    def _thread(self, message: UUID, scope: frozenset[UUID]) -> Expression:
        """This reader knows a thread by one of its messages: the id in the index depends on messages they may not see."""
        thread, members = self._names.conversation(message, scope)
        return _among("thread", [str(thread)]) if members is None else _among("id", map(str, members))

    def _field(self, leaf: In, place: QuerySpan) -> Expression:
        attribute, filterable = _FIELDS[leaf.operator]
        if leaf.value == "*":
            return Filter(f"{filterable} EXISTS")
        if "*" in leaf.value:
            ending = leaf.value.removeprefix("*.").lower()
            if leaf.operator == "filename" and leaf.value.startswith("*.") and ending.isalnum():
                return _among(filterable, [f".{ending}"])
            possible = "filename:*.pdf and filename:* are" if leaf.operator == "filename" else "only subject:* is"
            raise self._error(f"{leaf.operator}:{leaf.value} is not supported; {possible}", place)
        found = words(leaf.value)
        return _among(filterable, found) if len(found) == 1 else Term(leaf.value, True, (attribute,))

    def _person(self, operator: str, value: str, place: QuerySpan, visible: frozenset[UUID] | None) -> Expression:
        roles = PEOPLE if operator == "participant" else (operator,)
        if value == "*":
            return some_of([Filter(f"{role}_is EXISTS") for role in roles])
        angle = _ANGLE.search(value)
        address = angle[1] if angle else value
        if address.startswith("*@") and "*" not in address[1:]:
            address = address[1:]
        if "*" in address:
            found = self._names.addresses(address.lower(), visible, MAX_VALUES + 1)
            if len(found) > MAX_VALUES:
                raise self._error(f"more than {MAX_VALUES:,} addresses match {address}", place)
            return some_of([_among(f"{role}_is", map(token, found)) for role in roles])
        if "@" in address:
            named = [_among(f"{role}_is", [token(address)]) for role in roles]
            return some_of([*named, *self._recorded(roles, address, visible)])
        found_words = words(address)
        if len(found_words) == 1:
            return some_of([_among(f"{role}_is", found_words) for role in roles])
        return Term(address, True, roles)

    def _recorded(self, roles: Iterable[str], address: str, visible: frozenset[UUID] | None) -> list[Expression]:
        """Recipients that a journal recorded: of copies that this reader may see, because they may be blind copies."""
        recorded = [f"{role}:{address}" for role in roles if role in _RECORDED]
        if visible is None:
            return [_among("any_recipient", map(token, recorded))] if recorded else []
        if len(visible) * len(recorded) > MAX_VALUES:
            return []
        return [_among("recipient", [copy_token(mailbox, one) for mailbox in sorted(visible) for one in recorded])]

    def _held(self, leaf: Held, visible: frozenset[UUID] | None) -> Expression:
        if leaf.operator == "hold":
            return self._on_hold(leaf)
        if leaf.operator in ("tag", "note"):
            return self._marked(leaf)
        if leaf.operator == "source" and visible is None:
            return _among("source", map(str, self._sources(leaf)))
        if leaf.operator in ("mailbox", "source"):
            return _among("mailbox", map(str, self._mailboxes(leaf, visible)))
        attribute = "folder" if leaf.operator == "in" else "label"
        values: Sequence[str] = [leaf.value]
        if "*" in leaf.value:
            look_up = self._names.folders if leaf.operator == "in" else self._names.labels
            values = look_up(leaf.value, visible, MAX_VALUES + 1)
        if visible is None:
            tokens = [token(value) for value in values]
        else:
            tokens = [copy_token(mailbox, value) for mailbox in sorted(visible) for value in values]
        if len(tokens) > MAX_VALUES:
            raise self._error(f"{leaf.operator}:{leaf.value} matches more than {MAX_VALUES:,} {attribute}s", leaf.place)
        return _among(attribute if visible is not None else f"any_{attribute}", tokens)

    def _marked(self, leaf: Held) -> Expression:
        look_up = self._names.tagged if leaf.operator == "tag" else self._names.noted
        found = look_up(leaf.value, self._reader, MAX_MARKED + 1)  # unknown names find nothing: shared ones can be confidential
        if len(found) > MAX_MARKED:
            raise self._error(f"more than {MAX_MARKED:,} messages have {leaf.operator}:{leaf.value}", leaf.place)
        return _among("id", map(str, found))

    def _on_hold(self, leaf: Held) -> Expression:
        """Only for readers of all mail: holds can be confidential."""
        found = self._names.holds(leaf.value) if self._scope is None else ()
        if not found and "*" not in leaf.value:
            raise self._unknown(leaf)
        parts: list[Expression] = []
        for hold in found:
            if len(hold.message_ids) > MAX_VALUES:
                raise self._error(f"more than {MAX_VALUES:,} messages were selected for {leaf.value}", leaf.place)
            boxes = hold.mailbox_ids.union(*map(self._names.mailboxes, hold.addresses))
            parts += [_among("mailbox", map(str, sorted(boxes))), _among("id", map(str, hold.message_ids))]
            parts += [_among(f"{role}_is", map(token, hold.addresses)) for role in PEOPLE]
            parts += [self.node(hold.query, None)] if hold.query is not None else []
        return some_of(parts)

    def _narrow_mailboxes(self, parts: Iterable[Node], visible: frozenset[UUID] | None) -> frozenset[UUID] | None:
        """`mailbox:alice in:inbox` means the inbox of that mailbox, not that of another mailbox with the same mail."""
        if not any(_asks_for_folder(part) for part in parts):
            return visible
        for part in parts:
            if isinstance(part, Held) and part.operator in ("mailbox", "source"):
                visible = self._mailboxes(part, visible)
        return visible

    def _mailboxes(self, leaf: Held, visible: frozenset[UUID] | None) -> frozenset[UUID]:
        if leaf.operator == "mailbox":
            found = self._names.mailboxes(leaf.value)
        else:
            found = frozenset().union(*self._names.sources(leaf.value).values())
        found = found if visible is None else found & visible
        if not found and "*" not in leaf.value and not (leaf.operator == "source" and visible is None):
            raise self._unknown(leaf)
        return found

    def _sources(self, leaf: Held) -> Iterable[UUID]:
        found = self._names.sources(leaf.value)
        if not found and "*" not in leaf.value:
            raise self._unknown(leaf)
        return found

    def _unknown(self, leaf: Held) -> QueryError:
        return self._error(f"there is no {leaf.operator} {leaf.value} that you can see", leaf.place)

    def _error(self, reason: str, place: QuerySpan) -> QueryError:
        return QueryError(reason, self._query, place.start, place.end)


def _asks_for_folder(tree: Node) -> bool:
    match tree:
        case And(parts) | Or(parts):
            return any(map(_asks_for_folder, parts))
        case NotQuery(inner):
            return _asks_for_folder(inner)
        case Held(operator):
            return operator in ("in", "label")
    return False


def _time(leaf: Time) -> Expression:
    bounds: list[Expression] = []
    if leaf.since is not None:
        bounds.append(Filter(f"date >= {int(leaf.since.timestamp())}"))
    if leaf.until is not None:
        bounds.append(Filter(f"date < {int(leaf.until.timestamp())}"))
    return all_of(bounds)


def _value(operator: str, value: str) -> Expression:
    if operator == "retention" and value == "*":
        return Filter("retention EXISTS")
    if operator == "type":
        value = file_type(value)
    spellings = [value, value.replace("@", ".")] if operator == "list" else [value]
    return _among(_EXACT[operator], map(token, spellings))


def file_type(value: str) -> str:
    """The name of a kind of file in documents."""
    return _TYPES.get(value, value)


def _among(attribute: str, values: Iterable[str]) -> Expression:
    quoted = [f'"{value}"' for value in dict.fromkeys(values)]
    if not quoted:
        return FALSE
    return Filter(f"{attribute} = {quoted[0]}" if len(quoted) == 1 else f"{attribute} IN [{', '.join(quoted)}]")


def _quote(term: Term) -> str:
    return '"' + " ".join(re.sub('["\u201c\u201d\u201e]', " ", term.text).split()) + '"'
