"""Sources and mailboxes as the journal names them, for those that are not set up (any more)."""

from __future__ import annotations

from sqlalchemy import Connection, text

from archiver.store.journal import Origin

_ADD_SOURCE = text("""
    INSERT INTO ingestion_sources (id, kind, name, status, status_message) VALUES (:id, :kind, :name, :status, :why)
    ON CONFLICT (id) DO NOTHING""")
_NAME_IS_TAKEN = text("SELECT 1 FROM ingestion_sources WHERE lower(name) = lower(:name) AND id <> :id AND removed_at IS NULL")
_ADD_MAILBOX = text("""
    INSERT INTO mailboxes (id, source_id, address, display_name, provider_id)
    VALUES (:id, :source_id, :address, :display_name, :provider_id) ON CONFLICT DO NOTHING""")
_IS_THERE = text("SELECT 1 FROM mailboxes WHERE id = :id")
WITHOUT_CREDENTIALS = "Rebuilt from the packs: enter its credentials again, then resume it."


def add_origin(connection: Connection, origin: Origin, status: str = "paused", why: str | None = WITHOUT_CREDENTIALS) -> None:
    """Ids are those of before; a name or an address that is taken gets the end of the id behind it."""
    if connection.execute(_IS_THERE, {"id": origin.mailbox_id}).one_or_none():
        return
    name = origin.source_name
    if connection.execute(_NAME_IS_TAKEN, {"name": name, "id": origin.source_id}).one_or_none():
        name = f"{name} ({str(origin.source_id)[-12:]})"
    connection.execute(
        _ADD_SOURCE, {"id": origin.source_id, "kind": origin.source_kind, "name": name, "status": status, "why": why}
    )
    for address in (origin.address, f"{origin.address} ({str(origin.mailbox_id)[-12:]})"):
        values = {
            "id": origin.mailbox_id,
            "source_id": origin.source_id,
            "address": address,
            "display_name": origin.display_name,
            "provider_id": origin.provider_id,
        }
        if connection.execute(_ADD_MAILBOX, values).rowcount:
            return
