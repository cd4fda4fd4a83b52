"""What somebody may be about to type: operators, and addresses, mailboxes, folders and labels that begin like this.

Nobody gets a name from a mailbox that they may not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from archiver.services.access import Scope
from archiver.services.search_names import FOLDERS_HELD

_MOST_COMPLETIONS = 8
_LOOKED_AT = {"address": 5_000, "label": 50_000}
"""Rows at most: a suggestion that takes long is none."""
_OPERATORS = (
    "from:", "to:", "cc:", "participant:", "subject:", "filename:", "has:attachment", "type:", "larger:", "smaller:",
    "before:", "after:", "on:", "older_than:", "newer_than:", "in:", "label:", "mailbox:", "source:", "list:", "message-id:",
    "thread:",
)  # fmt: skip
_ROLES = {"from": ["from", "sender"], "to": ["to"], "cc": ["cc"], "bcc": ["bcc"], "participant": None}
_PLACES = {"in": "folder", "label": "label", "mailbox": "mailbox"}

# A value and, where it has one, a name. {seen} is what the scope sees of copies (c), {boxes} of mailboxes (b), {folders} of
# folders.
_STATEMENTS = {
    "mailbox": """
        SELECT b.address, max(b.display_name) FROM mailboxes b WHERE lower(b.address) LIKE :like AND {boxes}
        GROUP BY 1 ORDER BY 1 LIMIT :most""",
    "address": """
        SELECT address, max(name) FROM (
            SELECT p.address, p.name FROM participants p
            WHERE left(p.address, 320) COLLATE "C" LIKE :like AND (CAST(:roles AS text[]) IS NULL OR p.role = ANY(:roles))
            AND EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = p.message_id AND {seen}) LIMIT :looked_at) AS seen
        GROUP BY address ORDER BY count(*) DESC, address LIMIT :most""",
    "folder": """
        WITH RECURSIVE {folders}
        SELECT DISTINCT folder, NULL FROM held WHERE lower(folder) LIKE :like AND folder <> '' ORDER BY 1 LIMIT :most""",
    "label": """
        SELECT DISTINCT label, NULL FROM (
            SELECT c.labels FROM message_copies c WHERE c.labels <> '{{}}' AND {seen} LIMIT :looked_at) AS c,
            unnest(c.labels) AS label
        WHERE lower(label) LIKE :like AND label <> '' ORDER BY 1 LIMIT :most""",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    kind: str
    value: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    """The whole query with its last word completed."""
    hint: str = ""


def suggest(connection: Connection, scope: Scope, prefix: str, most: int = 10) -> list[Suggestion]:
    """Mailboxes, addresses and folders."""
    prefix = prefix.replace("\0", "").strip()
    if not prefix:
        return []
    found = [one for kind in ("mailbox", "address", "folder") for one in _beginning(connection, scope, kind, prefix, most)]
    return found[: most * 2]


def complete(connection: Connection, scope: Scope, query: str) -> list[Completion]:
    """What the last word of a query may become."""
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
    return [Completion(f"{before}{sign}{operator}:{_quoted(one.value)} ") for one in found]


def _last_word(query: str) -> tuple[str, str]:
    """What comes before it, and the word; in quotation marks that are still open, it may have spaces."""
    if query.count('"') % 2:
        rest, _, quoted = query.rpartition('"')
        head, _, operator = rest.rpartition(" ")
        word = operator + quoted
    else:
        head, _, word = query.rpartition(" ")
    return (f"{head} " if head else ""), word


def _beginning(
    connection: Connection, scope: Scope, kind: str, prefix: str, most: int, roles: Sequence[str] | None = None
) -> list[Suggestion]:
    if scope.mailboxes == frozenset():
        return []
    boxes = "true" if scope.mailboxes is None else "b.id = ANY(:scope_mailboxes)"
    folders = FOLDERS_HELD.format(boxes=boxes)
    like = prefix.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    values: dict[str, object] = {"like": like, "most": most, **scope.values()}
    if kind in _LOOKED_AT:
        values["looked_at"] = _LOOKED_AT[kind]
    if kind == "address":
        values["roles"] = roles
    statement = text(_STATEMENTS[kind].format(seen=scope.copies("c"), boxes=boxes, folders=folders))
    return [Suggestion(kind, *row) for row in connection.execute(statement, values)]


def _quoted(value: str) -> str:
    return value if all(char.isalnum() or char in "@.-_/+" for char in value) else '"' + value.replace('"', " ") + '"'
