"""Whether a search document matches a query, in one mailbox: what the index would answer for exact words, without the index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any
from uuid import UUID

from archiver.retention.predicate import ROLES
from archiver.search.document import PEOPLE, TEXTS
from archiver.search.names import DatabaseNames
from archiver.search.query.compiler import file_type
from archiver.search.query.syntax import And, Expiry, Held, In, Leaf, Node, NotQuery, Or, Size, Text, Time, Value
from archiver.search.tokens import token
from archiver.search.words import words

Document = Mapping[str, Any]
_ANGLE = re.compile(r"<([^<>\s@]++@[^<>\s]++)>")
_FIELDS = {"subject": ("subject", "subject_is"), "filename": ("filenames", "filename_is")}
_VALUES = {
    "has": "has",
    "type": "types",
    "message-id": "message_id",
    "sha256": "hashes",
    "list": "list",
    "retention": "retention",
}
_SEARCHED = ("subject", "filenames", *PEOPLE, *TEXTS)


@dataclass(frozen=True, slots=True)
class DocumentMatcher:
    names: DatabaseNames

    def matches(self, tree: Node, document: Document, mailbox_id: UUID) -> bool:
        match tree:
            case And(parts):
                return all(self.matches(part, document, mailbox_id) for part in parts)
            case Or(parts):
                return any(self.matches(part, document, mailbox_id) for part in parts)
            case NotQuery(inner):
                return not self.matches(inner, document, mailbox_id)
        return self._leaf(tree, document, mailbox_id)

    def _leaf(self, leaf: Leaf, document: Document, mailbox_id: UUID) -> bool:
        match leaf:
            case Text(text):
                return _has_phrase(document, _SEARCHED, words(text))
            case Size(larger, size_bytes):
                return bool(document["size"] > size_bytes if larger else document["size"] < size_bytes)
            case Time(since, until):
                at = document["date"]
                return (since is None or at >= int(since.timestamp())) and (until is None or at < int(until.timestamp()))
            case Value(operator, value):
                return _has_value(document, operator, value)
            case In(operator, value):
                return _has_person(document, operator, value) if operator in ROLES else _has_words(document, operator, value)
            case Held():
                return self._held(leaf, document, mailbox_id)
            case Expiry():
                raise AssertionError("refused when the query was parsed")

    def _held(self, leaf: Held, document: Document, mailbox_id: UUID) -> bool:
        if leaf.operator == "mailbox":
            return mailbox_id in self.names.mailboxes(leaf.value)
        if leaf.operator == "source":
            return any(mailbox_id in boxes for boxes in self.names.sources(leaf.value).values())
        prefix = f"{mailbox_id}/"
        values = [one.removeprefix(prefix) for one in _listed(document, "folder" if leaf.operator == "in" else "label")
                  if one.startswith(prefix)]  # fmt: skip
        return _any_equal(token(leaf.value), values) if "*" not in leaf.value else _any_like(token(leaf.value), values)


def _listed(document: Document, attribute: str) -> Sequence[str]:
    found = document.get(attribute, ())
    return (found,) if isinstance(found, str) else found


def _any_equal(wanted: str, values: Iterable[str]) -> bool:
    return any(value.lower() == wanted.lower() for value in values)


def _any_like(pattern: str, values: Iterable[str]) -> bool:
    """`*` matches any characters; everything else matches itself."""
    compiled = re.compile(translate(pattern.lower().replace("[", "[[]").replace("?", "[?]")))
    return any(compiled.match(value.lower()) for value in values)


def _has_phrase(document: Document, attributes: Iterable[str], phrase: list[str]) -> bool:
    wanted = f" {' '.join(phrase)} "
    return any(wanted in f" {' '.join(words(text))} " for name in attributes for text in _listed(document, name))


def _has_words(document: Document, operator: str, value: str) -> bool:
    attribute, single = _FIELDS[operator]
    if value == "*":
        return single in document
    if "*" in value:
        return value.removeprefix("*").lower() in document.get(single, ())
    found = words(value)
    return found[0] in document.get(single, ()) if len(found) == 1 else _has_phrase(document, (attribute,), found)


def _has_person(document: Document, operator: str, value: str) -> bool:
    roles = PEOPLE if operator == "participant" else (operator,)
    tokens = [one for role in roles for one in document.get(f"{role}_is", ())]
    angle = _ANGLE.search(value)
    address = angle[1] if angle else value
    if value == "*":
        return any(f"{role}_is" in document for role in roles)
    if address.startswith("*@") and "*" not in address[1:]:
        address = address[1:]
    if "*" in address:
        return _any_like(address, (one for one in tokens if "@" in one and not one.startswith("@")))
    if "@" in address:
        return _any_equal(token(address), tokens)
    found = words(address)
    return found[0] in tokens if len(found) == 1 else _has_phrase(document, roles, found)


def _has_value(document: Document, operator: str, value: str) -> bool:
    if operator == "retention" and value == "*":
        return "retention" in document
    if operator == "type":
        value = file_type(value)
    spellings = [value, value.replace("@", ".")] if operator == "list" else [value]
    return any(_any_equal(token(one), _listed(document, _VALUES[operator])) for one in spellings)
