"""Completions for a query: operators, and addresses, mailboxes, folders and labels with a given prefix.

No name is suggested from a mailbox that the reader may not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.search.names import FOLDERS_HELD

_MOST_COMPLETIONS = 8
_LOOKED_AT = {"address": 5_000, "label": 50_000}
"""Limit of rows that are inspected: a slow suggestion is useless."""
_OPERATORS = (
    "from:", "to:", "cc:", "participant:", "subject:", "filename:", "has:attachment", "type:", "larger:", "smaller:",
    "before:", "after:", "on:", "older_than:", "newer_than:", "in:", "label:", "mailbox:", "source:", "list:", "message-id:",
    "thread:",
)  # fmt: skip
_ROLES = {"from": ["from", "sender"], "to": ["to"], "cc": ["cc"], "bcc": ["bcc"], "participant": None}
_PLACES = {"in": "folder", "label": "label", "mailbox": "mailbox"}

# A value and, if it has one, a name. {seen} limits copies (c) to the scope, {boxes} mailboxes (b), {folders} folders.
_STATEMENTS = {
    "mailbox": """
        SELECT b.address AS value, max(b.display_name) AS name FROM mailboxes b WHERE lower(b.address) LIKE :like AND {boxes}
        GROUP BY 1 ORDER BY 1 LIMIT :limit""",
    "address": """
        SELECT address AS value, max(name) AS name FROM (
            SELECT p.address, p.name FROM participants p
            WHERE left(p.address, 320) COLLATE "C" LIKE :like AND (CAST(:roles AS text[]) IS NULL OR p.role = ANY(:roles))
            AND EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = p.message_id AND {seen}) LIMIT :looked_at) AS seen
        GROUP BY address ORDER BY count(*) DESC, address LIMIT :limit""",
    "folder": """
        WITH RECURSIVE {folders}
        SELECT DISTINCT folder AS value FROM held WHERE lower(folder) LIKE :like AND folder <> '' ORDER BY 1 LIMIT :limit""",
    "label": """
        SELECT DISTINCT label AS value FROM (
            SELECT c.labels FROM message_copies c WHERE c.labels <> '{{}}' AND {seen} LIMIT :looked_at) AS c,
            unnest(c.labels) AS label
        WHERE lower(label) LIKE :like AND label <> '' ORDER BY 1 LIMIT :limit""",
}


@dataclass(frozen=True, slots=True)
class SuggestedValue:
    value: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Suggestion:
    kind: str
    value: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    """The whole query, with its last word completed."""
    hint: str = ""


def suggest(connection: Connection, scope: MailScope, prefix: str, limit: int = 10) -> list[Suggestion]:
    """Mailboxes, addresses and folders that begin with the prefix."""
    prefix = prefix.replace("\0", "").strip()
    if not prefix:
        return []
    found = [one for kind in ("mailbox", "address", "folder") for one in _beginning(connection, scope, kind, prefix, limit)]
    return found[: limit * 2]


def complete(connection: Connection, scope: MailScope, query: str) -> list[Completion]:
    """Completions of the last word of a query."""
    before, word = _last_word(query.replace("\0", ""))
    sign = "-" if word.startswith("-") else ""
    operator, colon, value = word.removeprefix("-").partition(":")
    operator = operator.lower()
    if not colon:
        fitting = [one for one in _OPERATORS if operator and one.startswith(operator)]
        return [Completion(f"{before}{sign}{one}", one.partition(":")[0]) for one in fitting[:_MOST_COMPLETIONS]]
    kind = "address" if operator in _ROLES else _PLACES.get(operator)
    if kind is None or (kind == "address" and not value):
        return []
    found = _beginning(connection, scope, kind, value, _MOST_COMPLETIONS, _ROLES.get(operator))
    return [Completion(f"{before}{sign}{operator}:{_quote(one.value)} ") for one in found]


def _last_word(query: str) -> tuple[str, str]:
    """The text before it, and the word, which may contain spaces inside open quotation marks."""
    if query.count('"') % 2:
        rest, _, quoted = query.rpartition('"')
        head, _, operator = rest.rpartition(" ")
        word = operator + quoted
    else:
        head, _, word = query.rpartition(" ")
    return (f"{head} " if head else ""), word


def _beginning(
    connection: Connection, scope: MailScope, kind: str, prefix: str, limit: int, roles: Sequence[str] | None = None
) -> list[Suggestion]:
    if scope.mailboxes == frozenset():
        return []
    boxes = "true" if scope.mailboxes is None else "b.id = ANY(:scope_mailboxes)"
    folders = FOLDERS_HELD.format(boxes=boxes)
    like = prefix.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    values: dict[str, object] = {"like": like, "limit": limit, **scope.values()}
    if kind in _LOOKED_AT:
        values["looked_at"] = _LOOKED_AT[kind]
    if kind == "address":
        values["roles"] = roles
    statement = _STATEMENTS[kind].format(seen=scope.copies("c"), boxes=boxes, folders=folders)
    return [Suggestion(kind, row.value, row.name) for row in sql.query(connection, statement, SuggestedValue, **values)]


def _quote(value: str) -> str:
    return value if all(char.isalnum() or char in "@.-_/+" for char in value) else '"' + value.replace('"', " ") + '"'
