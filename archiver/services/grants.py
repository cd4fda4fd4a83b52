"""What users may see beyond their own mail: a mailbox, addresses by pattern, a source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.errors import NotFound, UsageError
from archiver.models.ids import uuid7
from archiver.services import audit
from archiver.services.principal import Principal
from archiver.services.users import User

_PATTERN = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,253}")

_LISTED = text("""
    SELECT g.id, g.mailbox_id, b.address, g.address_pattern, g.source_id, s.name AS source, u.email AS granted_by, g.created_at,
        g.may_ingest
    FROM grants g LEFT JOIN mailboxes b ON b.id = g.mailbox_id LEFT JOIN ingestion_sources s ON s.id = g.source_id
    LEFT JOIN users u ON u.id = g.granted_by
    WHERE g.user_id = :user_id ORDER BY g.id""")
_ADD = text("""
    INSERT INTO grants (id, user_id, mailbox_id, address_pattern, source_id, granted_by, may_ingest)
    VALUES (:id, :user_id, :mailbox_id, :address_pattern, :source_id, :granted_by, :may_ingest)
    ON CONFLICT (user_id, mailbox_id, address_pattern, source_id) DO UPDATE SET may_ingest = excluded.may_ingest
        WHERE grants.may_ingest <> excluded.may_ingest""")
_REMOVE = text("""
    DELETE FROM grants WHERE user_id = :user_id AND mailbox_id IS NOT DISTINCT FROM :mailbox_id
    AND address_pattern IS NOT DISTINCT FROM :address_pattern AND source_id IS NOT DISTINCT FROM :source_id""")


@dataclass(frozen=True, slots=True)
class Target:
    """One of the three."""

    mailbox_id: UUID | None = None
    address_pattern: str | None = None
    source_id: UUID | None = None

    def values(self) -> dict[str, object]:
        return {"mailbox_id": self.mailbox_id, "address_pattern": self.address_pattern, "source_id": self.source_id}


@dataclass(frozen=True, slots=True)
class Grant:
    id: UUID
    mailbox_id: UUID | None
    mailbox: str | None
    address_pattern: str | None
    source_id: UUID | None
    source: str | None
    granted_by: str | None
    created_at: datetime
    may_ingest: bool
    """Messages may be handed in, too (`POST /messages`)."""

    @property
    def target(self) -> dict[str, str]:
        found = {"mailbox": self.mailbox, "pattern": self.address_pattern, "source": self.source}
        return {kind: value for kind, value in found.items() if value is not None}


def find_target(connection: Connection, *, mailbox: str | None, pattern: str | None, source: str | None) -> Target:
    """Of what somebody named. Raises UsageError unless it is one thing, and there."""
    if sum(value is not None for value in (mailbox, pattern, source)) != 1:
        raise UsageError("name one of mailbox, pattern and source")
    if pattern is not None:
        return Target(address_pattern=clean_pattern(pattern))
    if mailbox is not None:
        statement = (
            "SELECT id FROM mailboxes WHERE lower(address) = lower(:given) OR CAST(id AS text) = :given ORDER BY id LIMIT 2"
        )
        what, given = "mailbox", mailbox
    else:
        statement = (
            "SELECT id FROM ingestion_sources WHERE removed_at IS NULL AND (lower(name) = lower(:given)"
            " OR CAST(id AS text) = :given)"
        )
        what, given = "source", source or ""
    ids = connection.execute(text(statement), {"given": given.replace("\0", "")}).scalars().all()
    if not ids:
        raise NotFound(f"there is no {what} {given[:100]!r}")
    if len(ids) > 1:
        raise UsageError(f"several sources have a mailbox {given}: give its id, one of {', '.join(map(str, ids))}")
    return Target(mailbox_id=ids[0]) if what == "mailbox" else Target(source_id=ids[0])


def clean_pattern(pattern: str) -> str:
    """`*` stands for anything on its side of the @."""
    pattern = pattern.strip().lower()
    if not _PATTERN.fullmatch(pattern):
        raise UsageError(f"{pattern[:100]!r}: expected an address in which * stands for anything, such as *@sales.example.org")
    return pattern


def add(connection: Connection, who: Principal, user: User, target: Target, *, may_ingest: bool = False) -> None:
    """To read; with `may_ingest` also to hand messages in. The same again changes nothing."""
    values = {"id": uuid7(), "user_id": user.id, "granted_by": who.user_id, "may_ingest": may_ingest, **target.values()}
    if connection.execute(_ADD, values).rowcount:
        more = {"may_ingest": True} if may_ingest else {}
        audit.record(connection, who, "grant.added", "user", user.id, email=user.email, **_shown(target), **more)


def remove_target(connection: Connection, who: Principal, user: User, target: Target) -> None:
    if not connection.execute(_REMOVE, {"user_id": user.id, **target.values()}).rowcount:
        raise NotFound(f"{user.email} has no such grant")
    audit.record(connection, who, "grant.removed", "user", user.id, email=user.email, **_shown(target))


def remove(connection: Connection, who: Principal, user: User, grant_id: UUID) -> None:
    found = next((one for one in listed(connection, user.id) if one.id == grant_id), None)
    if found is None:
        raise NotFound(f"{user.email} has no grant {grant_id}")
    remove_target(connection, who, user, Target(found.mailbox_id, found.address_pattern, found.source_id))


def listed(connection: Connection, user_id: UUID) -> list[Grant]:
    return [Grant(*row) for row in connection.execute(_LISTED, {"user_id": user_id})]


def _shown(target: Target) -> dict[str, object]:
    return {name: value for name, value in target.values().items() if value is not None}
