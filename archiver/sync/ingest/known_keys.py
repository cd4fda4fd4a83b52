"""checkDuplicate: which messages need no fetch."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Connection

from archiver.db.sql import query
from archiver.sync.ingest import statements
from archiver.sync.ingest.provider_keys import SEPARATOR, fit_key

_KEYS_PER_QUERY = 1000


def known_keys(connection: Connection, mailbox_id: UUID, provider_keys: Collection[str]) -> set[str]:
    """The keys that need no fetch. A key that ends with the separator stands for every key that begins with it."""
    asked = {fit_key(key): key for key in provider_keys}
    beginnings = [key for key in asked if key.endswith(SEPARATOR)]
    whole = [key for key in asked if not key.endswith(SEPARATOR)]
    found: set[str] = set()
    for statement, keys in ((statements.KNOWN, whole), (statements.KNOWN_BEGINNINGS, beginnings)):
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            some = keys[start : start + _KEYS_PER_QUERY]
            found.update(asked[key] for key in query(connection, statement, str, mailbox_id=mailbox_id, keys=some))
    return found
