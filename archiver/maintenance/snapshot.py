"""Snapshots of the configuration in the packs (sources, users, grants, alerts, retention), so that a rebuild restores it.

Code that changes one of these tables calls `save_config` afterwards. The credentials of sources are never included; second
factors, signing keys and addresses of alert channels are, sealed with ENCRYPTION_KEY as in the database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, text

from archiver.db import sql
from archiver.evidence.signing import create_key
from archiver.maintenance.recovery.origins import WITHOUT_CREDENTIALS
from archiver.secrets import Keyring
from archiver.store.archive import Archive
from archiver.store.journal import Config
from archiver.sync.ingest import statements
from archiver.sync.ingest.archive_state import archive_id, next_stamp, take_archive_id

_COLUMNS = {  # in the order in which they can be inserted
    "users": "id, email, address_verified_at, name, password_hash, role, may_read_all, settings, created_at, disabled_at, "
    "totp_secret, totp_confirmed_at, totp_last_step, recovery_code_hashes",
    "ingestion_sources": "id, kind, name, settings, created_at, removed_at",
    "mailboxes": "id, source_id, address, display_name, provider_id, created_at, gone_at, former_address, replaces_id",
    "signing_keys": "id, public_key, private_key, created_at",
    "grants": "id, user_id, mailbox_id, address_pattern, source_id, may_ingest, created_at",
    "alert_rules": "name, enabled, threshold, for_minutes, updated_at",
    "alert_channels": "id, user_id, name, address, min_severity, muted, wants_summary, language, zone, quiet_from, "
    "quiet_until, created_at",
    "holds": "id, name, reason, mailbox_ids, addresses, query, zone, created_by, created_by_id, created_at, "
    "release_requested_at, release_requested_by, release_requested_by_id, release_reason, released_at, released_by",
    "hold_messages": "hold_id, message_id, is_selected",
    "hold_notices": "id, hold_id, address, text, requested_by, requested_at, token_sha256, sent_at, attempts, acknowledged_at",
    "thread_splits": "id, message_id, created_by, created_by_id, created_at, undone_at, undone_by",
    "thread_split_members": "key, split_id",
    "tags": "id, name, owner_id, created_by, created_by_id, created_at",
    "message_tags": "tag_id, message_id",
    "notes": "id, message_id, owner_id, author, text, is_shared, created_at, updated_at",
    "retention_labels": "name, title, takes_date, hides_from_auditors, is_locked, created_by, created_at, retired_at",
    "policy_versions": "id, policy_id, number, name, query, zone, counted_from, from_year_end, keep_for, delete_after, "
    "is_retired, reason, created_by, created_at, simulated_at, approved_by, approved_at, rejected_by, rejected_at",
    "retention_runs": "id, started_at, finished_at, version_ids, copies, messages, size_bytes, held, unclear, tombstone_ids, "
    "error, receipt, signature, key",
    "erasures": "id, name, reason, created_by, created_at, searched_at, unread, approved_by, approved_at, copies, messages, "
    "size_bytes, kept, excluded, exports, tombstone_ids, deleted_at, pack_ids, finished_at, receipt, signature, key",
}
_ONLY = {
    "hold_messages": "WHERE is_selected AND EXISTS (SELECT 1 FROM holds h WHERE h.id = hold_id AND h.released_at IS NULL)",
    "retention_runs": "WHERE finished_at IS NOT NULL",
    "erasures": "WHERE deleted_at IS NOT NULL",
    "thread_split_members": "WHERE EXISTS (SELECT 1 FROM thread_splits s WHERE s.id = split_id AND s.undone_at IS NULL)",
}
_CHANGED = {
    "erasures": "(id)",
    "holds": "(id)",
    "hold_notices": "(id)",
    "policy_versions": "(id)",
    "retention_labels": "(name)",
    "signing_keys": "(id)",
    "alert_rules": "(name)",
    "alert_channels": "(id)",
    "notes": "(id)",
    "thread_splits": "(id)",
}
"""Rows that are replaced by those of a newer snapshot: a hold that was released stays released."""

_PAUSE = text("UPDATE ingestion_sources SET status = 'paused', status_message = :why WHERE id = ANY(:ids)")


def save_config(engine: Engine, archive: Archive) -> None:
    """Appends a snapshot. The newest one counts."""
    with engine.begin() as connection:
        tables = {table: _read(connection, table) for table in _COLUMNS}
        stamp = next_stamp(connection)
        written = archive.append([Config(datetime.now(UTC), tables, stamp, archive_id(connection)).record()])
        sql.run(connection, statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
        statements.record_pack(connection, written)


def ensure_signing_key(engine: Engine, archive: Archive, keyring: Keyring) -> None:
    """Creates the archive's signing key if it has none, and stores it in the packs, too."""
    with engine.begin() as connection:
        is_new = create_key(connection, keyring)
    if is_new:
        save_config(engine, archive)


def _read(connection: Connection, table: str) -> list[dict[str, object]]:
    columns = f"{_COLUMNS[table]} FROM {table} {_ONLY.get(table, '')} ORDER BY 1, 2"
    return sql.query(connection, f"SELECT to_jsonb(t) FROM (SELECT {columns}) AS t", dict)  # noqa: S608


def _present(columns: str, rows: list[dict[str, Any]]) -> str:
    """A snapshot of an older version lacks newer columns: they get their defaults."""
    return ", ".join(name for name in columns.split(", ") if not rows or name in rows[0])


def restore_config(connection: Connection, config: Config) -> None:
    """Adds what is not there yet. Sources come back paused, as they have no credentials."""
    if config.archive_id is not None:
        take_archive_id(connection, config.archive_id)
    for table, columns in _COLUMNS.items():
        found = config.tables.get(table, [])
        rows, columns = sql.rows(found), _present(columns, found)
        first = columns.partition(",")[0]
        conflict = "ON CONFLICT DO NOTHING"
        if table in _CHANGED:
            changed = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
            conflict = f"ON CONFLICT {_CHANGED[table]} DO UPDATE SET {changed}"
        added = sql.query(
            connection,
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_populate_recordset(NULL::{table}, :rows::jsonb)"  # noqa: S608
            f" {conflict} RETURNING {first}",
            object,
            rows=rows,
        )
        if table == "ingestion_sources":
            connection.execute(_PAUSE, {"ids": added, "why": WITHOUT_CREDENTIALS})
