"""The mailbox that a batch belongs to, as the packs record it."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query_optional
from archiver.errors import UsageError
from archiver.store.journal import Origin
from archiver.sync.ingest import statements


def load_origin(connection: Connection, mailbox_id: UUID) -> Origin:
    found = query_optional(connection, statements.ORIGIN, Origin, mailbox_id=mailbox_id)
    if found is None:
        raise UsageError(f"there is no mailbox {mailbox_id}")
    return found
