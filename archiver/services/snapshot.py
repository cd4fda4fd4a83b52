"""What is set up, kept in the packs as well: sources, mailboxes, users and grants, so that a rebuild brings them back.

Whoever changes one of these tables calls `save_config` after the change. Credentials are never part of it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, text

from archiver.services import batch_sql
from archiver.services.archive_state import next_stamp
from archiver.services.origins import WITHOUT_CREDENTIALS
from archiver.store.archive import Archive
from archiver.store.journal import Config

_COLUMNS = {  # in the order in which they can be inserted
    "users": "id, email, address_verified_at, name, password_hash, role, may_read_all, settings, created_at, disabled_at",
    "ingestion_sources": "id, kind, name, settings, created_at, removed_at",
    "mailboxes": "id, source_id, address, display_name, provider_id, created_at, gone_at",
    "grants": "id, user_id, mailbox_id, address_pattern, source_id, created_at",
}

_PAUSE = text("UPDATE ingestion_sources SET status = 'paused', status_message = :why WHERE id = ANY(:ids)")


def save_config(engine: Engine, archive: Archive) -> None:
    """Appends a snapshot. The newest one counts."""
    with engine.begin() as connection:
        tables = {table: _read(connection, table) for table in _COLUMNS}
        stamp = next_stamp(connection)
        written = archive.append([Config(datetime.now(UTC), tables, stamp).record()])
        batch_sql.run(connection, batch_sql.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        batch_sql.record_pack(connection, written)


def _read(connection: Connection, table: str) -> list[dict[str, object]]:
    statement = text(f"SELECT to_jsonb(t) FROM (SELECT {_COLUMNS[table]} FROM {table} ORDER BY id) AS t")  # noqa: S608
    return list(connection.execute(statement).scalars())


def restore_config(connection: Connection, config: Config) -> None:
    """Adds what is not there yet. Sources come back paused, as they have no credentials."""
    for table, columns in _COLUMNS.items():
        rows = batch_sql.rows(config.tables.get(table, []))
        added = batch_sql.run(
            connection,
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, %(rows)s::jsonb)"  # noqa: S608
            " ON CONFLICT DO NOTHING RETURNING id",
            rows=rows,
        )
        if table == "ingestion_sources":
            connection.execute(_PAUSE, {"ids": [row.id for row in added], "why": WITHOUT_CREDENTIALS})
