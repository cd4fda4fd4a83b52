"""What somebody may be about to type: addresses, mailboxes and folders that begin like this, among what they may see."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from archiver.services.access import Scope

_LOOKED_AT = 5_000
"""Rows at most: a suggestion that takes long is none."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    kind: str
    value: str
    name: str | None = None


def suggest(connection: Connection, scope: Scope, prefix: str, most: int = 10) -> list[Suggestion]:
    prefix = prefix.replace("\0", "").strip()
    if not prefix or scope.mailboxes == frozenset():
        return []
    values = {**scope.values(), "like": _like(prefix), "most": most, "looked_at": _LOOKED_AT}
    boxes = "" if scope.mailboxes is None else "AND b.id = ANY(:scope_mailboxes)"
    statements = {
        "mailbox": f"SELECT b.address, b.display_name FROM mailboxes b WHERE lower(b.address) LIKE :like {boxes}"  # noqa: S608
        " ORDER BY lower(b.address) LIMIT :most",
        "address": "SELECT address, max(name) FROM (SELECT p.address, p.name FROM participants p"  # noqa: S608
        f" WHERE left(p.address, 320) LIKE :like AND EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = p.message_id"
        f" AND {scope.copies('c')}) LIMIT :looked_at) AS seen GROUP BY address ORDER BY count(*) DESC, address LIMIT :most",
        "folder": "SELECT DISTINCT c.folder, NULL FROM message_copies c"  # noqa: S608
        f" WHERE lower(c.folder) LIKE :like AND {scope.copies('c')} ORDER BY 1 LIMIT :most",
    }
    return [
        Suggestion(kind, row[0], row[1])
        for kind, statement in statements.items()
        for row in connection.execute(text(statement), values)
    ][: most * 2]


def _like(prefix: str) -> str:
    return prefix.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
