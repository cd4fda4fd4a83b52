"""What the last word of a query may become: operators, and addresses, folders, labels and mailboxes that the scope sees."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from archiver.services.access import Scope

MOST = 8
_LOOKED_AT = 5_000
"""Rows at most: a suggestion that takes long is none."""
OPERATORS = (
    "from:", "to:", "cc:", "participant:", "subject:", "filename:", "has:attachment", "type:", "larger:", "smaller:",
    "before:", "after:", "on:", "older_than:", "newer_than:", "in:", "label:", "mailbox:", "source:", "list:", "message-id:",
    "thread:",
)  # fmt: skip
_PEOPLE = {"from": ["from", "sender"], "to": ["to"], "cc": ["cc"], "bcc": ["bcc"], "participant": None}


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    """The whole query with the word completed."""
    hint: str = ""


def complete(connection: Connection, scope: Scope, query: str) -> list[Completion]:
    """Nobody gets a name from a mailbox that they may not see."""
    if query.count('"') % 2:
        before, _, quoted = query.rpartition('"')
        head, _, operator = before.rpartition(" ")
        word = operator + quoted
    else:
        head, _, word = query.rpartition(" ")
    before = f"{head} " if head else ""
    sign = "-" if word.startswith("-") else ""
    name, colon, value = word.removeprefix("-").partition(":")
    name = name.lower()
    if not colon:
        fitting = [one for one in OPERATORS if len(name) > 0 and one.startswith(name)]
        return [Completion(f"{before}{sign}{one}", one.partition(":")[0]) for one in fitting[:MOST]]
    if name in _PEOPLE:
        found = _addresses(connection, scope, _PEOPLE[name], value)
    elif name in ("in", "label", "mailbox"):
        found = _places(connection, scope, name, value)
    else:
        return []
    return [Completion(f"{before}{sign}{name}:{_quoted(one)} ") for one in found]


def _quoted(value: str) -> str:
    return value if all(char.isalnum() or char in "@.-_/+" for char in value) else '"' + value.replace('"', " ") + '"'


def _like(value: str) -> str:
    return value.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _addresses(connection: Connection, scope: Scope, roles: list[str] | None, value: str) -> list[str]:
    if len(value) < 1:
        return []
    statement = text(
        "SELECT address FROM (SELECT p.address FROM participants p"  # noqa: S608
        " WHERE left(p.address, 320) LIKE :like AND (CAST(:roles AS text[]) IS NULL OR p.role = ANY(:roles))"
        f" AND EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = p.message_id AND {scope.copies('c')})"
        " LIMIT :looked_at) AS seen GROUP BY address ORDER BY count(*) DESC, address LIMIT :most"
    )
    values = {"like": _like(value), "roles": roles, "most": MOST, "looked_at": _LOOKED_AT, **scope.values()}
    return list(connection.execute(statement, values).scalars())


def _places(connection: Connection, scope: Scope, name: str, value: str) -> list[str]:
    if name == "mailbox":
        visible = "true" if scope.mailboxes is None else "id = ANY(:scope_mailboxes)"
        statement = (
            f"SELECT DISTINCT address FROM mailboxes WHERE lower(address) LIKE :like AND {visible} ORDER BY 1 LIMIT :most"  # noqa: S608
        )
    elif name == "in":
        statement = (
            f"SELECT DISTINCT c.folder FROM message_copies c WHERE lower(c.folder) LIKE :like AND {scope.copies('c')}"  # noqa: S608
            " ORDER BY 1 LIMIT :most"
        )
    else:
        statement = (
            "SELECT DISTINCT label FROM message_copies c, unnest(c.labels) AS label"  # noqa: S608
            f" WHERE lower(label) LIKE :like AND {scope.copies('c')} ORDER BY 1 LIMIT :most"
        )
    found = connection.execute(text(statement), {"like": _like(value), "most": MOST, **scope.values()})
    return [one for one in found.scalars() if one]
