"""Submits one message directly: the same bytes are archived once, and the caller can't tell whether they were known."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.access import audit, users
from archiver.access.principal import Principal
from archiver.access.scope import scope_of, writable_by
from archiver.db.ids import uuid7
from archiver.db.sql import query, query_one
from archiver.db.states import UserRole
from archiver.errors import NotAllowed, NotFound
from archiver.sync.ingest.store_batch import Ingest, load_origin
from connectors.base import Batch, RawMessage

_FOLDER = "API"
_FIND = """
    SELECT id FROM mailboxes WHERE lower(address) = lower(:given) OR CAST(id AS text) = lower(:given)
    ORDER BY CAST(id AS text) = lower(:given) DESC, gone_at IS NOT NULL, id"""


_FIND_CREATED = """
    SELECT b.id FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id
    WHERE lower(s.name) = :name AND lower(b.address) = lower(:address) AND s.removed_at IS NULL"""


def find_mailbox(connection: Connection, principal: Principal, given: str) -> UUID:
    """A mailbox the caller may write to. If there is none, it is created: the caller's own, or any for an administrator.

    Raises NotAllowed for a mailbox that the caller may only read, and NotFound for one that the caller may not know of.
    """
    given = given.strip().replace("\0", "")
    writable, found = writable_by(connection, principal), query(connection, _FIND, UUID, given=given)
    for mailbox_id in found:
        if writable.sees(mailbox_id):
            return mailbox_id
    if any(map(scope_of(connection, principal).sees, found)):
        raise NotAllowed("you may only read this mailbox; submitting messages needs a grant with the right 'ingest'")
    if principal.role is UserRole.ADMINISTRATOR or users.owns_address(connection, principal, given):
        return _create_mailbox(connection, principal, users.clean_email(given))
    raise NotFound(f"there is no mailbox {given[:100]!r}")


def _create_mailbox(connection: Connection, principal: Principal, address: str) -> UUID:
    """Under a separate source, from which nothing is fetched."""
    name = f"api:{address.lower()}"
    connection.execute(
        text(
            "INSERT INTO ingestion_sources (id, kind, name, status) VALUES (:id, 'api', :name, 'imported')"
            " ON CONFLICT (lower(name)) WHERE removed_at IS NULL DO NOTHING"
        ),
        {"id": uuid7(), "name": name},
    )
    connection.execute(
        text(
            "INSERT INTO mailboxes (id, source_id, address) SELECT :id, s.id, :address FROM ingestion_sources s"
            " WHERE lower(s.name) = :name AND s.removed_at IS NULL ON CONFLICT (source_id, lower(address)) DO NOTHING"
        ),
        {"id": uuid7(), "address": address, "name": name},
    )
    made = query_one(connection, _FIND_CREATED, UUID, name=name, address=address)
    audit.record(connection, principal, "mailbox.added", "mailbox", made, address=address)
    return made


def archive_message(engine: Engine, ingest: Ingest, principal: Principal, mailbox_id: UUID, path: Path, sha256: bytes) -> None:
    with engine.connect() as connection:
        origin = load_origin(connection, mailbox_id)
    message = RawMessage(f"api:{sha256.hex()}", path=path, folder=_FOLDER)
    ingest.store_batch(origin, Batch(messages=(message,)), submitted_by=principal)
