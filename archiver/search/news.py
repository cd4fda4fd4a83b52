"""What is new to a reader: copies that were archived after a moment. Their ids begin with the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.db import sql
from archiver.search.query.errors import QueryError
from archiver.search.service import MailSearch

MOST = 2_000
"""Beyond that, the number is a lower bound."""
_NEW = """
    SELECT DISTINCT c.message_id FROM message_copies c
    WHERE c.id >= :first AND (CAST(:last AS uuid) IS NULL OR c.id < :last) AND {seen} LIMIT :limit"""
_NEW_AMONG = """
    SELECT DISTINCT c.message_id FROM message_copies c
    WHERE c.message_id = ANY(CAST(:ids AS uuid[])) AND c.id >= :first AND {seen}"""


def first_id(moment: datetime) -> UUID:
    """The smallest UUIDv7 of that millisecond."""
    return UUID(int=int(moment.timestamp() * 1000) << 80 | 7 << 76 | 0b10 << 62)


def new_messages(connection: Connection, scope: MailScope, since: datetime, until: datetime | None = None) -> list[UUID]:
    values = {"first": first_id(since), "last": first_id(until) if until else None, "limit": MOST, **scope.values()}
    return sql.query(connection, _NEW.format(seen=scope.copies()), UUID, **values)


def new_among(connection: Connection, scope: MailScope, since: datetime, message_ids: Sequence[UUID]) -> set[UUID]:
    values = {"ids": sql.uuids(message_ids), "first": first_id(since), **scope.values()}
    return set(sql.query(connection, _NEW_AMONG.format(seen=scope.copies()), UUID, **values))


def count_new(search: MailSearch, scope: MailScope, query: str, zone: tzinfo, found: Sequence[UUID]) -> int:
    """How many of these messages the query finds; 0 if it can no longer be answered."""
    try:
        return search.count_among(query, scope, found, zone) if found else 0
    except QueryError:
        return 0
