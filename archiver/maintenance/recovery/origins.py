"""Adds sources and mailboxes that are named in the journal but missing in the database."""

from __future__ import annotations

from sqlalchemy import Connection, text

from archiver.store.journal import Origin
from archiver.sync import mailboxes

_ADD_SOURCE = text("""
    INSERT INTO ingestion_sources (id, kind, name, status, status_message) VALUES (:id, :kind, :name, :status, :why)
    ON CONFLICT (id) DO NOTHING""")
_NAME_IS_TAKEN = text("SELECT 1 FROM ingestion_sources WHERE lower(name) = lower(:name) AND id <> :id AND removed_at IS NULL")
_ADD_MAILBOX = text("""
    INSERT INTO mailboxes (id, source_id, address, display_name, provider_id, replaces_id)
    VALUES (:id, :source_id, :address, :display_name, :provider_id, :replaces) ON CONFLICT DO NOTHING""")
_AT_THAT_ADDRESS = text("SELECT id FROM mailboxes WHERE source_id = :source_id AND lower(address) = lower(:address)")
_IS_THERE = text("SELECT 1 FROM mailboxes WHERE id = :id")
WITHOUT_CREDENTIALS = "Rebuilt from the packs: enter the credentials again, then resume the source."


def add_origin(connection: Connection, origin: Origin, status: str = "paused", why: str | None = WITHOUT_CREDENTIALS) -> None:
    """Ids are preserved. A source whose name is taken gets the end of its id as a suffix. An address that is taken has moved
    from one mailbox to another: in the journal, the later owner comes later."""
    if connection.execute(_IS_THERE, {"id": origin.mailbox_id}).one_or_none():
        return
    name = origin.source_name
    if connection.execute(_NAME_IS_TAKEN, {"name": name, "id": origin.source_id}).one_or_none():
        name = f"{name} ({str(origin.source_id)[-12:]})"
    connection.execute(
        _ADD_SOURCE, {"id": origin.source_id, "kind": origin.source_kind, "name": name, "status": status, "why": why}
    )
    values = {
        "id": origin.mailbox_id,
        "source_id": origin.source_id,
        "address": origin.address,
        "display_name": origin.display_name,
        "provider_id": origin.provider_id,
    }
    before = connection.execute(_AT_THAT_ADDRESS, values).scalar()
    if before is not None:
        mailboxes.retire(connection, [before])
    connection.execute(_ADD_MAILBOX, {**values, "replaces": before})
