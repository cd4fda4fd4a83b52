"""Tags: each user's own, and those that all share who can read the message.

A tag is in the database and in the configuration snapshots, not in the index: `tag:` looks it up (archiver.search.names), so
that a tag counts at once, and only for those who may see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from archiver.access import audit
from archiver.access.principal import Principal, Right
from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.errors import NotFound, UsageError

MAX_NAME_CHARS = 60
MAX_TAGS = 500
"""Of one user, and as many shared ones."""

_ADD = """
    INSERT INTO tags (id, name, owner_id, created_by, created_by_id) VALUES (:id, :name, :owner_id, :by, :user_id)
    ON CONFLICT DO NOTHING"""
_FIND = "SELECT id FROM tags WHERE lower(name) = lower(:name) AND owner_id IS NOT DISTINCT FROM CAST(:owner_id AS uuid)"
_COUNT = "SELECT count(*) FROM tags WHERE owner_id IS NOT DISTINCT FROM CAST(:owner_id AS uuid)"
_KNOWN = """
    SELECT t.id, t.name, t.owner_id IS NULL AS is_shared, t.created_by_id IS NOT DISTINCT FROM CAST(:reader AS uuid) AS is_mine,
        (SELECT count(*) FROM message_tags x JOIN messages m ON m.id = x.message_id
            WHERE x.tag_id = t.id AND {seen}) AS messages
    FROM tags t WHERE t.owner_id IS NULL OR t.owner_id = :reader ORDER BY lower(t.name), is_shared"""
_ON_MESSAGES = """
    SELECT x.message_id, t.id, t.name, t.owner_id IS NULL AS is_shared FROM message_tags x JOIN tags t ON t.id = x.tag_id
    WHERE x.message_id = ANY(CAST(:ids AS uuid[])) AND (t.owner_id IS NULL OR t.owner_id = :reader)
    ORDER BY lower(t.name), is_shared"""
_LOAD = """
    SELECT t.id, t.name, t.owner_id IS NULL AS is_shared, t.created_by_id IS NOT DISTINCT FROM CAST(:reader AS uuid) AS is_mine,
        0::bigint AS messages
    FROM tags t WHERE t.id = :id AND (t.owner_id IS NULL OR t.owner_id = :reader)"""


@dataclass(frozen=True, slots=True)
class Tag:
    id: UUID
    name: str
    is_shared: bool
    is_mine: bool
    """Created by this reader."""
    messages: int
    """On how many messages that this reader can see."""


@dataclass(frozen=True, slots=True)
class TagOnMessage:
    message_id: UUID
    id: UUID
    name: str
    is_shared: bool


def clean_name(name: str) -> str:
    found = " ".join(name.split())
    if not found or len(found) > MAX_NAME_CHARS:
        raise UsageError(f"the name of a tag has 1 to {MAX_NAME_CHARS} characters")
    if any(not char.isprintable() or char in '"*()\u201c\u201d\u201e' for char in found):
        raise UsageError(f"{found!r}: the name of a tag has no quotation marks, brackets or asterisks")
    return found


def find_or_add(connection: Connection, principal: Principal, name: str, *, is_shared: bool) -> UUID:
    """Two users who add the same shared tag at once get the same one."""
    principal.require(Right.MARK)
    name, owner_id = clean_name(name), None if is_shared else principal.user_id
    if owner_id is None and not is_shared:
        raise UsageError("only users have tags of their own: share it")
    found = sql.query_optional(connection, _FIND, UUID, name=name, owner_id=owner_id)
    if found is not None:
        return found
    if sql.query_one(connection, _COUNT, int, owner_id=owner_id) >= MAX_TAGS:
        raise UsageError(f"there are already {MAX_TAGS} tags: remove one first")
    sql.run(connection, _ADD, id=uuid7(), name=name, owner_id=owner_id, by=principal.name, user_id=principal.user_id)
    return sql.query_one(connection, _FIND, UUID, name=name, owner_id=owner_id)


def list_tags(connection: Connection, scope: MailScope) -> list[Tag]:
    """The reader's own tags, and the shared ones that are on mail they can see, or that they created."""
    statement = _KNOWN.format(seen="true" if scope.mailboxes is None else scope.messages())
    found = sql.query(connection, statement, Tag, reader=scope.reader, **scope.values())
    return [tag for tag in found if tag.messages or tag.is_mine or scope.mailboxes is None]


def load(connection: Connection, principal: Principal, tag_id: UUID) -> Tag:
    found = sql.query_optional(connection, _LOAD, Tag, id=tag_id, reader=principal.user_id)
    if found is None:
        raise NotFound(f"there is no tag {tag_id}")
    return found


def tags_on(connection: Connection, scope: MailScope, message_ids: Sequence[UUID]) -> dict[UUID, list[TagOnMessage]]:
    """The caller has checked that the messages are visible."""
    found: dict[UUID, list[TagOnMessage]] = {}
    if not message_ids:
        return found
    for row in sql.query(connection, _ON_MESSAGES, TagOnMessage, ids=sql.uuids(message_ids), reader=scope.reader):
        found.setdefault(row.message_id, []).append(row)
    return found


def remove(connection: Connection, principal: Principal, tag_id: UUID) -> None:
    """From all messages. A shared tag is removed by its creator, or by an administrator."""
    principal.require(Right.MARK)
    tag = load(connection, principal, tag_id)
    if tag.is_shared and not tag.is_mine:
        principal.require(Right.ADMIN)
    messages = sql.run(connection, "DELETE FROM message_tags WHERE tag_id = :id", id=tag_id)
    sql.run(connection, "DELETE FROM tags WHERE id = :id", id=tag_id)
    audit.record(connection, principal, "tag.removed", "tag", tag_id, name=tag.name, shared=tag.is_shared, messages=messages)
