"""The completeness ledger: what a source listed, less what is archived, skipped, dead or gone. The rest is the gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import orjson
from sqlalchemy import Connection, text

# Only what is not explained yet is kept: the rest of a listing says nothing that the copies do not say.
_LIST = text("""
    INSERT INTO unaccounted_keys (mailbox_id, provider_key, folder)
    SELECT :mailbox, key, :folder FROM unnest(CAST(:keys AS text[])) AS key
    WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = :mailbox AND c.provider_key = key)
    ON CONFLICT DO NOTHING""")

_ACCOUNT = text("""
    DELETE FROM unaccounted_keys u WHERE u.mailbox_id = :mailbox AND (
        EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = u.mailbox_id AND c.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM skipped_messages s WHERE s.mailbox_id = u.mailbox_id AND s.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM dead_letters d
                   WHERE d.kind = 'message' AND d.mailbox_id = u.mailbox_id AND d.provider_key = u.provider_key))""")


@dataclass(frozen=True, slots=True)
class FolderAccount:
    """One line of the ledger. listed = archived + skipped + dead letters + missing (+ what came after the listing)."""

    folder: str
    listed: int
    archived: int
    gone: int
    deleted: int
    skipped: int
    dead_letters: int
    missing: int


def record_listing(connection: Connection, mailbox_id: UUID, folder: str, keys: Sequence[str]) -> None:
    values = {"mailbox": mailbox_id, "folder": folder}
    connection.execute(text("DELETE FROM unaccounted_keys WHERE mailbox_id = :mailbox AND folder = :folder"), values)
    connection.execute(_LIST, {**values, "keys": list(keys)})
    connection.execute(
        text(
            "INSERT INTO folder_listings (mailbox_id, folder, listed) VALUES (:mailbox, :folder, :listed)"
            " ON CONFLICT (mailbox_id, folder) DO UPDATE SET listed = excluded.listed, listed_at = now()"
        ),
        {**values, "listed": len(keys)},
    )


def record_skipped(connection: Connection, mailbox_id: UUID, skipped: Sequence[tuple[str, str, str]]) -> None:
    """(provider key, folder, rule) each."""
    rows = [{"k": key, "f": folder, "r": rule} for key, folder, rule in sorted(set(skipped))]
    connection.execute(
        text(
            "INSERT INTO skipped_messages (mailbox_id, provider_key, folder, rule)"
            " SELECT :mailbox, k, f, r FROM json_to_recordset(CAST(:rows AS json)) AS x(k text, f text, r text)"
            " ON CONFLICT (mailbox_id, provider_key) DO UPDATE SET rule = excluded.rule"
        ),
        {"mailbox": mailbox_id, "rows": orjson.dumps(rows).decode()},
    )


def gap(connection: Connection, mailbox_id: UUID) -> list[str]:
    """The keys that nothing explains, after striking out those that something does."""
    connection.execute(_ACCOUNT, {"mailbox": mailbox_id})
    statement = text("SELECT provider_key FROM unaccounted_keys WHERE mailbox_id = :mailbox ORDER BY provider_key")
    return list(connection.execute(statement, {"mailbox": mailbox_id}).scalars())


def account(connection: Connection, mailbox_id: UUID) -> list[FolderAccount]:
    """The ledger of a mailbox by folder, computed from rows."""
    rows = connection.execute(
        text("""
        WITH per AS (
            SELECT folder, count(*) FILTER (WHERE gone_at IS NULL AND deleted_at IS NULL) AS archived,
                   count(*) FILTER (WHERE gone_at IS NOT NULL AND deleted_at IS NULL) AS gone,
                   count(*) FILTER (WHERE deleted_at IS NOT NULL) AS deleted, 0 AS skipped, 0 AS dead, 0 AS missing, 0 AS listed
            FROM message_copies WHERE mailbox_id = :mailbox GROUP BY folder
            UNION ALL SELECT folder, 0, 0, 0, count(*), 0, 0, 0 FROM skipped_messages
                WHERE mailbox_id = :mailbox GROUP BY folder
            UNION ALL SELECT coalesce(folder, ''), 0, 0, 0, 0, count(*), 0, 0 FROM dead_letters
                WHERE mailbox_id = :mailbox AND kind = 'message' GROUP BY 1
            UNION ALL SELECT folder, 0, 0, 0, 0, 0, count(*), 0 FROM unaccounted_keys
                WHERE mailbox_id = :mailbox GROUP BY folder
            UNION ALL SELECT folder, 0, 0, 0, 0, 0, 0, listed FROM folder_listings WHERE mailbox_id = :mailbox)
        SELECT folder, sum(listed) AS listed, sum(archived) AS archived, sum(gone) AS gone, sum(deleted) AS deleted,
               sum(skipped) AS skipped, sum(dead) AS dead_letters, sum(missing) AS missing
        FROM per GROUP BY folder ORDER BY folder"""),
        {"mailbox": mailbox_id},
    )
    return [FolderAccount(row.folder, *(int(value) for value in row[1:])) for row in rows]
