"""One message, handed in directly: archived once for the same bytes, and nobody learns whether they were known."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from archiver.errors import NotAllowed, NotFound
from archiver.models.ids import uuid7
from archiver.models.states import Role
from archiver.services import audit, users
from archiver.services.access import scope_of, writable_by
from archiver.services.ingest import Ingest, load_origin
from archiver.services.principal import Principal
from connectors.base import Batch, RawMessage

_FOLDER = "API"
_FIND = text("""
    SELECT id FROM mailboxes WHERE lower(address) = lower(:given) OR CAST(id AS text) = lower(:given)
    ORDER BY CAST(id AS text) = lower(:given) DESC, gone_at IS NOT NULL, id""")


def find_mailbox(connection: Connection, who: Principal, given: str) -> UUID:
    """One that they may write to. Where there is none, one is made for their own address; as an administrator for any.

    Raises NotAllowed for one that they may only read, and NotFound for one that they may not know of.
    """
    given = given.strip().replace("\0", "")
    writable, found = writable_by(connection, who), list(connection.execute(_FIND, {"given": given}).scalars())
    for mailbox_id in found:
        if writable.sees(mailbox_id):
            return UUID(str(mailbox_id))
    if any(map(scope_of(connection, who).sees, found)):
        raise NotAllowed("you may read this mailbox; handing messages in needs a grant with the right 'ingest'")
    if who.role is Role.ADMINISTRATOR or users.owns_address(connection, who, given):
        return _make_mailbox(connection, who, users.clean_email(given))
    raise NotFound(f"there is no mailbox {given[:100]!r}")


def _make_mailbox(connection: Connection, who: Principal, address: str) -> UUID:
    """Under a source of its own, which nothing is fetched from."""
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
    made = connection.execute(
        text(
            "SELECT b.id FROM mailboxes b JOIN ingestion_sources s ON s.id = b.source_id"
            " WHERE lower(s.name) = :name AND lower(b.address) = lower(:address) AND s.removed_at IS NULL"
        ),
        {"name": name, "address": address},
    ).scalar_one()
    audit.record(connection, who, "mailbox.added", "mailbox", made, address=address)
    return UUID(str(made))


def archive_message(engine: Engine, ingest: Ingest, who: Principal, mailbox_id: UUID, path: Path, sha256: bytes) -> None:
    with engine.connect() as connection:
        origin = load_origin(connection, mailbox_id)
    message = RawMessage(f"api:{sha256.hex()}", path=path, folder=_FOLDER)
    ingest.store_batch(
        origin,
        Batch(messages=(message,)),
        also=lambda connection, _: audit.record(
            connection, who, "message.handed_in", "mailbox", mailbox_id, sha256=sha256.hex()
        ),
    )
