"""Messages that are whole, and of which no readable journal frame tells a mailbox: kept in a mailbox of their own."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Connection

from archiver.services import batch_sql as sql
from archiver.services.origins import add_origin
from archiver.store.journal import Origin

FOUND_MAILBOX = UUID("f0d00000-0000-7000-8000-000000000002")
FOUND_NAME = "found in the store"
_ORIGIN = Origin(UUID("f0d00000-0000-7000-8000-000000000001"), "api", FOUND_NAME, FOUND_MAILBOX, FOUND_NAME)
"""Of a kind for which nothing is fetched."""

_KEEP = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key)
    SELECT gen_random_uuid(), m.id, %(mailbox_id)s, encode(m.sha256, 'hex') FROM messages m
    WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)
        AND NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.deleted_sha256 = m.sha256) {among}
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING RETURNING message_id"""
_KEEP_ALL = _KEEP.format(among="")
_KEEP_AMONG = _KEEP.format(among="AND m.id = ANY(CAST(%(ids)s AS uuid[]))")


def keep_found(connection: Connection, among: Collection[UUID] | None = None) -> int:
    """Of all messages, or of these: those that have no copy, and were never deleted. Returns how many."""
    if among is None:
        kept = sql.run(connection, _KEEP_ALL, mailbox_id=FOUND_MAILBOX)
    else:
        kept = sql.run(connection, _KEEP_AMONG, mailbox_id=FOUND_MAILBOX, ids=sql.uuids(among))
    if kept:
        add_origin(connection, _ORIGIN, "imported", None)
    return len(kept)
