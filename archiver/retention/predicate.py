"""Compiles a query into two SQL conditions on a message in one mailbox: one that every match fulfils, and one that is enough.

Where the two differ, the mail itself has to be read (archiver.retention.matching): names, subjects and texts are compared word
by word, and the database has neither their words nor the text of the mail. The aliases are `m` (messages) and `c` (a copy,
which stands for the message in its mailbox).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, tzinfo

from archiver.search.names import DatabaseNames, like_pattern
from archiver.search.query.errors import QueryError
from archiver.search.query.parser import parse
from archiver.search.query.syntax import And, Expiry, Held, In, Leaf, Node, NotQuery, Or, Size, Text, Time, Value
from archiver.search.tokens import token

TRUE, FALSE = "true", "false"
ROLES = {
    "from": ("from",),
    "to": ("to",),
    "cc": ("cc",),
    "bcc": ("bcc",),
    "participant": ("from", "to", "cc", "bcc", "sender", "reply_to"),
}
_ANGLE = re.compile(r"<([^<>\s@]++@[^<>\s]++)>")

_HAS_FILES = "(m.indexed_version = 0 OR EXISTS (SELECT 1 FROM message_attachments f WHERE f.message_id = m.id))"
_COPY = """EXISTS (SELECT 1 FROM message_copies f WHERE f.message_id = m.id AND f.mailbox_id = c.mailbox_id
    AND f.deleted_at IS NULL AND {condition})"""
_MAILBOX = """c.mailbox_id IN (SELECT b.id FROM mailboxes b WHERE lower(b.address) LIKE {pattern}
    OR split_part(lower(b.address), '@', 1) LIKE {pattern} OR CAST(b.id AS text) = {name})"""
_SOURCE = """c.mailbox_id IN (SELECT b.id FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id
    WHERE lower(s.name) LIKE {pattern} OR CAST(s.id AS text) = {name})"""
_PERSON = "EXISTS (SELECT 1 FROM participants p WHERE p.message_id = m.id AND p.role = ANY({roles}) AND {condition})"


@dataclass(frozen=True, slots=True)
class Bounds:
    upper: str
    """Every message that the query matches fulfils it."""
    lower: str
    """Every message that fulfils it is matched."""

    @property
    def is_exact(self) -> bool:
        return self.upper == self.lower


@dataclass(frozen=True, slots=True)
class MailQuery:
    """A query with its tree, as it is understood at one moment in one time zone."""

    text: str
    tree: Node
    now: datetime
    zone: tzinfo

    @classmethod
    def parse(cls, text: str, now: datetime, zone: tzinfo) -> MailQuery:
        tree = parse(text, now.replace(microsecond=0), zone)
        for leaf in leaves(tree):
            if isinstance(leaf, Value) and leaf.operator == "thread":
                raise QueryError(
                    "thread: can't be used here, because conversations grow", text, leaf.place.start, leaf.place.end
                )
            if isinstance(leaf, Held) and leaf.operator in ("tag", "note"):
                reason = f"{leaf.operator}: can't be used here, because people add and remove tags and notes at any time"
                raise QueryError(reason, text, leaf.place.start, leaf.place.end)
            if isinstance(leaf, Expiry) or (isinstance(leaf, Held) and leaf.operator == "hold"):
                operator = "expires" if isinstance(leaf, Expiry) else leaf.operator
                reason = f"{operator}: can't be used here, because it depends on policies and holds themselves"
                raise QueryError(reason, text, leaf.place.start, leaf.place.end)
        return cls(text, tree, now, zone)

    def check_names(self, names: DatabaseNames) -> None:
        """A mailbox or source that does not exist, or no longer: the query would mean something else than it says."""
        for leaf in leaves(self.tree):
            if isinstance(leaf, Held) and leaf.operator in ("mailbox", "source") and "*" not in leaf.value:
                found = names.mailboxes(leaf.value) if leaf.operator == "mailbox" else names.sources(leaf.value)
                if not found:
                    reason = f"there is no {leaf.operator} {leaf.value}"
                    raise QueryError(reason, self.text, leaf.place.start, leaf.place.end)
            if isinstance(leaf, Value) and leaf.operator == "retention" and leaf.value not in ("*", *names.retention_labels()):
                reason = f"there is no retention label {leaf.value}"
                raise QueryError(reason, self.text, leaf.place.start, leaf.place.end)


def leaves(tree: Node) -> Iterator[Leaf]:
    match tree:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case NotQuery(inner):
            yield from leaves(inner)
        case _:
            yield tree


@dataclass(slots=True)
class PredicateCompiler:
    """Collects the parameters of the conditions that it compiles; `prefix` keeps those of several queries apart."""

    prefix: str = "q"
    values: dict[str, object] = field(default_factory=dict)

    def compile(self, tree: Node) -> Bounds:
        match tree:
            case And(parts):
                return _join("AND", TRUE, [self.compile(part) for part in parts])
            case Or(parts):
                return _join("OR", FALSE, [self.compile(part) for part in parts])
            case NotQuery(inner):
                found = self.compile(inner)
                return Bounds(_negate(found.lower), _negate(found.upper))
        return self._leaf(tree)

    def _leaf(self, leaf: Leaf) -> Bounds:
        match leaf:
            case Text():
                return Bounds(TRUE, FALSE)
            case Size(larger, size_bytes):
                return _exact(f"m.size_bytes {'>' if larger else '<'} {self._add(size_bytes)}")
            case Time(since, until):
                return self._time(since, until)
            case Value(operator, value):
                return self._value(operator, value)
            case In(operator, value):
                return self._person(operator, value) if operator in ROLES else self._words(operator)
            case Held():
                return self._held(leaf)
            case Expiry():
                raise AssertionError("refused when the query was parsed")

    def _time(self, since: datetime | None, until: datetime | None) -> Bounds:
        bounds = [f"m.sort_at >= {self._add(since)}"] if since else []
        bounds += [f"m.sort_at < {self._add(until)}"] if until else []
        return _exact(f"({' AND '.join(bounds) or TRUE})")

    def _value(self, operator: str, value: str) -> Bounds:
        if operator == "sha256":
            name = self._add(bytes.fromhex(value))
            found = f"EXISTS (SELECT 1 FROM message_attachments f WHERE f.message_id = m.id AND f.attachment_sha256 = {name})"  # noqa: S608
            return _exact(f"(m.sha256 = {name} OR {found})")
        if operator == "message-id" and value.isascii() and " " not in value:
            return _exact(f"lower(coalesce(m.internet_message_id, '')) = {self._add(value.lower())}")
        if operator == "retention":
            which = "" if value == "*" else f" AND x.label = {self._add(value)}"
            return _exact(f"EXISTS (SELECT 1 FROM message_labels x WHERE x.message_id = m.id{which})")  # noqa: S608
        if operator == "has":  # the whole mail is parsed for its document
            return Bounds("(m.has_attachments OR m.indexed_version = 0)", "(m.has_attachments AND m.indexed_version > 0)")
        return Bounds(_HAS_FILES if operator == "type" else TRUE, FALSE)

    def _words(self, operator: str) -> Bounds:
        return Bounds("m.subject IS NOT NULL" if operator == "subject" else _HAS_FILES, FALSE)

    def _person(self, operator: str, value: str) -> Bounds:
        roles = self._add(list(ROLES[operator]))
        angle = _ANGLE.search(value)
        address = angle[1] if angle else value
        if address.startswith("*@") and "*" not in address[1:]:
            address = address[1:]
        anyone = _PERSON.format(roles=roles, condition=TRUE)
        if not address.isascii() or token(address) != address or ("@" not in address and "*" not in address):
            return Bounds(anyone, FALSE)
        if address == "*":
            return _exact(anyone)
        if "*" in address:
            pattern = self._add(like_pattern(address))
            condition = f"""left(p.address, 320) COLLATE "C" LIKE {pattern} AND p.address LIKE '%@%'"""
        elif address.startswith("@"):
            condition = f"p.address LIKE {self._add('%' + like_pattern(address))}"
        else:
            name = self._add(address.lower())  # as it is indexed, and as it is
            condition = f"""left(p.address, 320) COLLATE "C" = left({name}, 320) AND p.address = {name}"""
        return _exact(_PERSON.format(roles=roles, condition=condition))

    def _held(self, leaf: Held) -> Bounds:
        pattern, name = self._add(like_pattern(leaf.value)), self._add(leaf.value.lower())
        if leaf.operator in ("mailbox", "source"):
            return _exact((_MAILBOX if leaf.operator == "mailbox" else _SOURCE).format(pattern=pattern, name=name))
        if not leaf.value.isascii():
            return Bounds(TRUE, FALSE)
        column = "f.folder" if leaf.operator == "in" else "l"
        if "*" in leaf.value:
            condition = f"lower({column}) LIKE {pattern}"
        else:
            value = self._add(" ".join(leaf.value.split()).lower())
            condition = f"lower(btrim(regexp_replace({column}, '\\s+', ' ', 'g'))) = {value}"
        if leaf.operator == "label":
            condition = f"EXISTS (SELECT 1 FROM unnest(f.labels) AS l WHERE {condition})"  # noqa: S608
        return _exact(_COPY.format(condition=condition))

    def _add(self, value: object) -> str:
        name = f"{self.prefix}_{len(self.values)}"
        self.values[name] = value
        return f":{name}"


def _exact(condition: str) -> Bounds:
    return Bounds(condition, condition)


def _negate(condition: str) -> str:
    return {TRUE: FALSE, FALSE: TRUE}.get(condition, f"NOT ({condition})")


def _join(sign: str, neutral: str, parts: list[Bounds]) -> Bounds:
    return Bounds(
        _joined(sign, neutral, [part.upper for part in parts]), _joined(sign, neutral, [part.lower for part in parts])
    )


def _joined(sign: str, neutral: str, conditions: list[str]) -> str:
    strong = FALSE if sign == "AND" else TRUE
    if strong in conditions:
        return strong
    left = list(dict.fromkeys(condition for condition in conditions if condition != neutral))
    if not left:
        return neutral
    return left[0] if len(left) == 1 else "(" + f" {sign} ".join(left) + ")"
