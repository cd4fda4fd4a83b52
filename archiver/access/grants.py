"""Grants: what users can see beyond their own mail (a mailbox, addresses by pattern, a source)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.access.users import User
from archiver.db.ids import uuid7
from archiver.db.sql import query
from archiver.errors import NotFound, UsageError

_PATTERN = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[^\s@\x00-\x1f\x7f]{1,253}")

_LISTED = """
    SELECT g.id, g.mailbox_id, b.address AS mailbox, g.address_pattern, g.source_id, s.name AS source,
        u.email AS granted_by, g.created_at, g.may_ingest
    FROM grants g LEFT JOIN mailboxes b ON b.id = g.mailbox_id LEFT JOIN ingestion_sources s ON s.id = g.source_id
    LEFT JOIN users u ON u.id = g.granted_by
    WHERE g.user_id = :user_id ORDER BY g.id"""
_ADD = text("""
    INSERT INTO grants (id, user_id, mailbox_id, address_pattern, source_id, granted_by, may_ingest)
    VALUES (:id, :user_id, :mailbox_id, :address_pattern, :source_id, :granted_by, :may_ingest)
    ON CONFLICT (user_id, mailbox_id, address_pattern, source_id) DO UPDATE SET may_ingest = excluded.may_ingest
        WHERE grants.may_ingest <> excluded.may_ingest""")
_REMOVE = text("""
    DELETE FROM grants WHERE user_id = :user_id AND mailbox_id IS NOT DISTINCT FROM :mailbox_id
    AND address_pattern IS NOT DISTINCT FROM :address_pattern AND source_id IS NOT DISTINCT FROM :source_id""")


@dataclass(frozen=True, slots=True)
class GrantTarget:
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
    """The user can also submit messages (`POST /messages`)."""

    @property
    def target(self) -> dict[str, str]:
        found = {"mailbox": self.mailbox, "pattern": self.address_pattern, "source": self.source}
        return {kind: value for kind, value in found.items() if value is not None}


def find_target(connection: Connection, *, mailbox: str | None, pattern: str | None, source: str | None) -> GrantTarget:
    """Resolves a name or id. Raises UsageError unless exactly one of the three is given and exists."""
    if sum(value is not None for value in (mailbox, pattern, source)) != 1:
        raise UsageError("give exactly one of mailbox, pattern and source")
    if pattern is not None:
        return GrantTarget(address_pattern=clean_pattern(pattern))
    if mailbox is not None:
        statement = (
            "SELECT id FROM mailboxes WHERE lower(address) = lower(:name) OR CAST(id AS text) = :name ORDER BY id LIMIT 2"
        )
        kind, name = "mailbox", mailbox
    else:
        statement = (
            "SELECT id FROM ingestion_sources WHERE removed_at IS NULL AND (lower(name) = lower(:name)"
            " OR CAST(id AS text) = :name)"
        )
        kind, name = "source", source or ""
    ids = query(connection, statement, UUID, name=name.replace("\0", ""))
    if not ids:
        raise NotFound(f"there is no {kind} {name[:100]!r}")
    if len(ids) > 1:
        raise UsageError(f"several sources have a mailbox {name}: give its id, one of {', '.join(map(str, ids))}")
    return GrantTarget(mailbox_id=ids[0]) if kind == "mailbox" else GrantTarget(source_id=ids[0])


def clean_pattern(pattern: str) -> str:
    """`*` matches anything on its side of the @."""
    pattern = pattern.strip().lower()
    if not _PATTERN.fullmatch(pattern):
        raise UsageError(f"{pattern[:100]!r}: expected an address in which * matches anything, such as *@sales.example.org")
    return pattern


def add(connection: Connection, principal: Principal, user: User, target: GrantTarget, *, may_ingest: bool = False) -> None:
    """To read; with `may_ingest` also to submit messages. Adding the same grant twice changes nothing."""
    values = {"id": uuid7(), "user_id": user.id, "granted_by": principal.user_id, "may_ingest": may_ingest, **target.values()}
    if connection.execute(_ADD, values).rowcount:
        more = {"may_ingest": True} if may_ingest else {}
        audit.record(connection, principal, "grant.added", "user", user.id, email=user.email, **_shown(target), **more)


def remove_target(connection: Connection, principal: Principal, user: User, target: GrantTarget) -> None:
    if not connection.execute(_REMOVE, {"user_id": user.id, **target.values()}).rowcount:
        raise NotFound(f"{user.email} has no such grant")
    audit.record(connection, principal, "grant.removed", "user", user.id, email=user.email, **_shown(target))


def remove(connection: Connection, principal: Principal, user: User, grant_id: UUID) -> None:
    found = next((grant for grant in list_grants(connection, user.id) if grant.id == grant_id), None)
    if found is None:
        raise NotFound(f"{user.email} has no grant {grant_id}")
    remove_target(connection, principal, user, GrantTarget(found.mailbox_id, found.address_pattern, found.source_id))


def list_grants(connection: Connection, user_id: UUID) -> list[Grant]:
    return query(connection, _LISTED, Grant, user_id=user_id)


def _shown(target: GrantTarget) -> dict[str, object]:
    return {name: value for name, value in target.values().items() if value is not None}
