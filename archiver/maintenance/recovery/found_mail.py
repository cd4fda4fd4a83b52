"""Messages that are intact, but whose mailbox no readable journal frame names: they get a mailbox of their own."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Connection

from archiver.db import sql
from archiver.maintenance.recovery.origins import add_origin
from archiver.store.journal import Origin

FOUND_MAILBOX = UUID("f0d00000-0000-7000-8000-000000000002")
FOUND_NAME = "found in the store"
_ORIGIN = Origin(UUID("f0d00000-0000-7000-8000-000000000001"), "api", FOUND_NAME, FOUND_MAILBOX, FOUND_NAME)
"""A kind of source that is never synced."""

_ADD = """
    INSERT INTO message_copies (id, message_id, mailbox_id, provider_key)
    SELECT gen_random_uuid(), m.id, :mailbox_id, encode(m.sha256, 'hex') FROM messages m
    WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.message_id = m.id)
        AND NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.deleted_sha256 = m.sha256) {among}
    ON CONFLICT (mailbox_id, provider_key) DO NOTHING"""
_ADD_ALL = _ADD.format(among="")
_ADD_AMONG = _ADD.format(among="AND m.id = ANY(CAST(:ids AS uuid[]))")


def add_found(connection: Connection, among: Collection[UUID] | None = None) -> int:
    """Adds all messages, or those of `among`, that have no copy and were never deleted. Returns their number."""
    if among is None:
        added = sql.run(connection, _ADD_ALL, mailbox_id=FOUND_MAILBOX)
    else:
        added = sql.run(connection, _ADD_AMONG, mailbox_id=FOUND_MAILBOX, ids=sql.uuids(among))
    if added:
        add_origin(connection, _ORIGIN, "imported", None)
    return added
