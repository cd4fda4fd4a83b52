"""The completeness ledger: what a source listed, less what is archived, skipped, dead or gone. The rest is the gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import psycopg
from sqlalchemy import Connection, Result, text

_FEW_KEYS = 10_000

# Only what is not explained yet is kept: the rest of a listing says nothing that the copies do not say.
_LIST = """
    INSERT INTO unaccounted_keys (mailbox_id, provider_key, folder)
    SELECT :mailbox, key, :folder FROM {listed}
    WHERE NOT EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = :mailbox AND c.provider_key = key)
    ON CONFLICT DO NOTHING"""

_RECORD = text("""
    WITH replaced AS (DELETE FROM unaccounted_keys WHERE mailbox_id = :mailbox AND folder = :folder AND NOT :more)
    INSERT INTO folder_listings (mailbox_id, folder, listed) VALUES (:mailbox, :folder, :listed)
    ON CONFLICT (mailbox_id, folder) DO UPDATE SET listed_at = now(),
        listed = excluded.listed + CASE WHEN :more THEN folder_listings.listed ELSE 0 END""")

_ANY_UNACCOUNTED = text("SELECT EXISTS (SELECT 1 FROM unaccounted_keys WHERE mailbox_id = :mailbox)")

_ACCOUNT = text("""
    DELETE FROM unaccounted_keys u WHERE u.mailbox_id = :mailbox AND (
        EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = u.mailbox_id AND c.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM skipped_messages s WHERE s.mailbox_id = u.mailbox_id AND s.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM dead_letters d
                   WHERE d.kind = 'message' AND d.mailbox_id = u.mailbox_id AND d.provider_key = u.provider_key))""")

# Other bytes under the key of a listed message (a draft that was edited) are there as long as it is.
_GONE = """
    SELECT c.provider_key FROM message_copies c
    WHERE c.mailbox_id = :mailbox AND c.folder = :folder AND c.gone_at IS NULL AND c.deleted_at IS NULL
        AND split_part(c.provider_key, :version, 1) NOT IN (SELECT key FROM {listed})
    ORDER BY c.provider_key"""
_BACK = """
    SELECT c.provider_key FROM message_copies c
    WHERE c.mailbox_id = :mailbox AND c.folder = :folder AND c.gone_at IS NOT NULL AND c.deleted_at IS NULL
        AND c.provider_key IN (SELECT key FROM {listed})
    ORDER BY c.provider_key"""


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


@dataclass(frozen=True, slots=True)
class Differences:
    """Between what a folder has and what we hold of it."""

    gone: Sequence[str]
    """Held, and not listed any more."""
    back: Sequence[str]
    """Marked as gone, and listed again."""


def differences(connection: Connection, mailbox_id: UUID, folder: str, keys: Sequence[str], version_mark: str) -> Differences:
    """`version_mark`: what stands between a key and the version of other bytes that came under it."""
    values = {"mailbox": mailbox_id, "folder": folder, "version": version_mark}
    listed = _Listed(connection, keys)
    return Differences(listed.execute(_GONE, values).scalars().all(), listed.execute(_BACK, values).scalars().all())


class _Listed:
    """The keys of a listing for a few statements: as a parameter, or, since there may be millions, in a temporary table."""

    def __init__(self, connection: Connection, keys: Sequence[str]) -> None:
        self._connection = connection
        self._keys = list(keys) if len(keys) <= _FEW_KEYS else None
        if self._keys is None:
            connection.execute(text("CREATE TEMPORARY TABLE listed_keys (key text NOT NULL) ON COMMIT DROP"))
            raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
            with raw.cursor() as cursor, cursor.copy("COPY listed_keys FROM STDIN") as copy:
                for key in keys:
                    copy.write_row((key,))
            connection.execute(text("ANALYZE listed_keys"))

    def execute(self, statement: str, values: Mapping[str, Any]) -> Result[Any]:
        if self._keys is None:
            return self._connection.execute(text(statement.format(listed="listed_keys")), values)
        listed = "unnest(CAST(:keys AS text[])) AS listed_keys(key)"
        return self._connection.execute(text(statement.format(listed=listed)), {**values, "keys": self._keys})


def record_listing(
    connection: Connection, mailbox_id: UUID, folder: str, keys: Sequence[str], *, is_continued: bool = False
) -> None:
    """A listing replaces the one before; one that is continued adds to it."""
    values = {"mailbox": mailbox_id, "folder": folder}
    connection.execute(_RECORD, {**values, "listed": len(keys), "more": is_continued})
    if keys:
        _Listed(connection, keys).execute(_LIST, values)


def record_skipped(connection: Connection, mailbox_id: UUID, skipped: Sequence[tuple[str, str, str]]) -> None:
    """(provider key, folder, rule) each. What a rule leaves out is a failure no more."""
    rows = [{"k": key, "f": folder, "r": rule} for key, folder, rule in sorted(set(skipped))]
    connection.execute(
        text(
            "INSERT INTO skipped_messages (mailbox_id, provider_key, folder, rule)"
            " SELECT :mailbox, k, f, r FROM json_to_recordset(CAST(:rows AS json)) AS x(k text, f text, r text)"
            " ON CONFLICT (mailbox_id, provider_key) DO UPDATE SET rule = excluded.rule, skipped_at = now()"
        ),
        {"mailbox": mailbox_id, "rows": orjson.dumps(rows).decode()},
    )
    connection.execute(
        text("DELETE FROM dead_letters WHERE kind = 'message' AND mailbox_id = :mailbox AND provider_key = ANY(:keys)"),
        {"mailbox": mailbox_id, "keys": [row["k"] for row in rows]},
    )


def gap(connection: Connection, mailbox_id: UUID) -> list[str]:
    """The keys that nothing explains, after striking out those that something does."""
    values = {"mailbox": mailbox_id}
    if not connection.execute(_ANY_UNACCOUNTED, values).scalar():  # as it is nearly always
        return []
    connection.execute(_ACCOUNT, values)
    statement = text("SELECT provider_key FROM unaccounted_keys WHERE mailbox_id = :mailbox ORDER BY provider_key")
    return list(connection.execute(statement, values).scalars())


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
