"""The completeness ledger: what a source listed, minus what is archived, skipped, dead or gone. The rest is the gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import Connection, text

from archiver.db.sql import query, run
from archiver.db.values import json_text
from archiver.sync.ingest.provider_keys import FittedKeys, fit_key
from connectors.base import Batch

_FEW_KEYS = 10_000
"""Up to this many keys travel as a parameter; beyond that, a temporary table is faster and can be analysed."""

# Only unexplained keys are stored: the copies already record the rest of the listing.
# One probe of the unique index per key, whatever the planner's statistics say about the mailbox.
_NOT_ARCHIVED = """
    LEFT JOIN LATERAL (
        SELECT id FROM message_copies WHERE mailbox_id = :mailbox AND provider_key = key LIMIT 1) AS copy ON true
    WHERE copy.id IS NULL
    ON CONFLICT DO NOTHING"""
_ADD_UNACCOUNTED = "INSERT INTO unaccounted_keys (mailbox_id, provider_key, folder) SELECT :mailbox, key, "
_LIST = text(
    f"{_ADD_UNACCOUNTED} folder FROM unnest(CAST(:keys AS text[]), CAST(:folders AS text[])) AS l(key, folder)" + _NOT_ARCHIVED
)
_LIST_LONG = _ADD_UNACCOUNTED + ":folder FROM {listed}" + _NOT_ARCHIVED

_RECORD = text("""
    WITH reported AS (SELECT f, n, c FROM json_to_recordset(CAST(:rows AS json)) AS x(f text, n bigint, c boolean)),
    replaced AS (DELETE FROM unaccounted_keys u USING reported r
                 WHERE u.mailbox_id = :mailbox AND u.folder = r.f AND NOT r.c)
    INSERT INTO folder_listings AS l (mailbox_id, folder, listed) SELECT :mailbox, f, n FROM reported
    ON CONFLICT (mailbox_id, folder) DO UPDATE SET listed_at = now(), listed = excluded.listed
        + CASE WHEN (SELECT c FROM reported WHERE f = excluded.folder) THEN l.listed ELSE 0 END""")

_ACCOUNT = text("""
    DELETE FROM unaccounted_keys u WHERE u.mailbox_id = :mailbox AND (
        EXISTS (SELECT 1 FROM message_copies c WHERE c.mailbox_id = u.mailbox_id AND c.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM skipped_messages s WHERE s.mailbox_id = u.mailbox_id AND s.provider_key = u.provider_key)
        OR EXISTS (SELECT 1 FROM dead_letters d
                   WHERE d.kind = 'message' AND d.mailbox_id = u.mailbox_id AND d.provider_key = u.provider_key))""")

# Different bytes under the key of a listed message (an edited draft) exist as long as that message does.
_GONE = """
    SELECT c.provider_key FROM message_copies c
    WHERE c.mailbox_id = :mailbox AND c.folder = :folder AND c.gone_at IS NULL AND c.deleted_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM {listed} WHERE key = split_part(c.provider_key, :version, 1))
    ORDER BY c.provider_key"""
_BACK = """
    SELECT c.provider_key FROM message_copies c
    WHERE c.mailbox_id = :mailbox AND c.folder = :folder AND c.gone_at IS NOT NULL AND c.deleted_at IS NULL
        AND c.provider_key IN (SELECT key FROM {listed})
    ORDER BY c.provider_key"""


_NOT_FOUND_BEFORE = """
    SELECT provider_key, coalesce(folder, '') AS folder FROM dead_letters
    WHERE kind = 'message' AND mailbox_id = :mailbox AND provider_key = ANY(:keys)
        AND payload ->> :mark = 'true' AND discarded_at IS NULL AND next_try_at <= now()"""
_UNACCOUNTED = "SELECT provider_key FROM unaccounted_keys WHERE mailbox_id = :mailbox ORDER BY provider_key"
_ACCOUNTS = """
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
    SELECT folder, sum(listed)::bigint AS listed, sum(archived)::bigint AS archived, sum(gone)::bigint AS gone,
           sum(deleted)::bigint AS deleted, sum(skipped)::bigint AS skipped, sum(dead)::bigint AS dead_letters,
           sum(missing)::bigint AS missing,
           (SELECT l.listed_at FROM folder_listings l WHERE l.mailbox_id = :mailbox AND l.folder = per.folder) AS listed_at
    FROM per GROUP BY folder ORDER BY folder"""


class LostMessage(NamedTuple):
    provider_key: str
    folder: str


class LedgerListing(NamedTuple):
    """The keys a source reports for a folder: all of them, or a continuation of the previous listing."""

    folder: str
    keys: Sequence[str]
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class FolderAccount:
    """One line of the ledger. listed = archived + skipped + dead letters + missing (+ what arrived after the listing)."""

    folder: str
    listed: int
    archived: int
    gone: int
    deleted: int
    skipped: int
    dead_letters: int
    missing: int
    listed_at: datetime | None = None
    """Of which moment `listed` is; everything else is of now. None for a folder that was never listed."""


@dataclass(frozen=True, slots=True)
class LedgerDifferences:
    """Between a folder's listing and the copies in the archive."""

    gone: Sequence[str]
    """Archived, and no longer listed."""
    back: Sequence[str]
    """Marked as gone, and listed again."""


def differences(
    connection: Connection, mailbox_id: UUID, folder: str, keys: Sequence[str], version_mark: str
) -> LedgerDifferences:
    """`version_mark` separates a key from the version of different bytes that arrived under it."""
    values = {"mailbox": mailbox_id, "folder": folder, "version": version_mark}
    listed = _Listed(connection, keys)
    # Folder and listing may both be long, and Postgres has no good statistics on either: one pass over each, never one per row.
    connection.execute(text("SET LOCAL enable_nestloop = off"))
    found = LedgerDifferences(listed.query(_GONE, values), listed.query(_BACK, values))
    connection.execute(text("SET LOCAL enable_nestloop = on"))
    return found


class _Listed:
    """The keys of a listing for a few statements: as a parameter, or in a temporary table if there may be millions."""

    def __init__(self, connection: Connection, keys: Sequence[str]) -> None:
        self._connection = connection
        self._keys = list(keys) if len(keys) <= _FEW_KEYS else None
        if self._keys is None:
            # a function of the tables' owner: our own role may not create temporary tables
            connection.execute(text("SELECT create_listed_keys()"))
            raw: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
            with raw.cursor() as cursor, cursor.copy("COPY listed_keys FROM STDIN") as copy:
                for key in keys:
                    copy.write_row((key,))
            connection.execute(text("SELECT analyze_listed_keys()"))

    def run(self, statement: str, values: Mapping[str, Any]) -> None:
        run(self._connection, statement.format(listed=self._table), **values, keys=self._keys)

    def query(self, statement: str, values: Mapping[str, Any]) -> list[str]:
        return query(self._connection, statement.format(listed=self._table), str, **values, keys=self._keys)

    @property
    def _table(self) -> str:
        return "listed_keys" if self._keys is None else "unnest(CAST(:keys AS text[])) AS listed_keys(key)"


def record_batch(connection: Connection, mailbox_id: UUID, batch: Batch) -> None:
    """What a batch says about the ledger, in the transaction that stores the batch."""
    if batch.skipped:
        record_skipped(connection, mailbox_id, [(fit_key(one.provider_key), one.folder, one.rule) for one in batch.skipped])
    listings = [LedgerListing(one.folder, FittedKeys(one.provider_keys), one.is_continued) for one in batch.listings]
    record_listings(connection, mailbox_id, listings)


def record_listings(connection: Connection, mailbox_id: UUID, listings: Sequence[LedgerListing]) -> None:
    """A listing replaces the previous one of its folder; a continued listing adds to it."""
    small: dict[str, LedgerListing] = {}
    for listing in listings:
        if len(listing.keys) > _FEW_KEYS or listing.folder in small:
            _record(connection, mailbox_id, list(small.values()))
            small = {}
        small[listing.folder] = listing
        if len(listing.keys) > _FEW_KEYS:
            _record(connection, mailbox_id, [listing])
            small = {}
    _record(connection, mailbox_id, list(small.values()))


def _record(connection: Connection, mailbox_id: UUID, listings: Sequence[LedgerListing]) -> None:
    """One long listing, or several short ones of different folders."""
    if not listings:
        return
    rows = [{"f": one.folder, "n": len(one.keys), "c": one.is_continued} for one in listings]
    connection.execute(_RECORD, {"mailbox": mailbox_id, "rows": json_text(rows)})
    if len(listings) == 1 and len(listings[0].keys) > _FEW_KEYS:
        values = {"mailbox": mailbox_id, "folder": listings[0].folder}
        _Listed(connection, listings[0].keys).run(_LIST_LONG, values)
        return
    keys = [(key, one.folder) for one in listings for key in one.keys]
    if keys:
        values = {"keys": [key for key, _ in keys], "folders": [folder for _, folder in keys]}
        connection.execute(_LIST, {"mailbox": mailbox_id, **values})


def record_skipped(connection: Connection, mailbox_id: UUID, skipped: Sequence[tuple[str, str, str]]) -> None:
    """Takes (provider key, folder, rule) tuples. A message that a rule skips is no longer a failure."""
    once = {key: {"k": key, "f": folder, "r": rule} for key, folder, rule in skipped}
    rows = [once[key] for key in sorted(once)]
    connection.execute(
        text(
            "INSERT INTO skipped_messages (mailbox_id, provider_key, folder, rule)"
            " SELECT :mailbox, k, f, r FROM json_to_recordset(CAST(:rows AS json)) AS x(k text, f text, r text)"
            " ON CONFLICT (mailbox_id, provider_key) DO UPDATE SET rule = excluded.rule, skipped_at = now()"
        ),
        {"mailbox": mailbox_id, "rows": json_text(rows)},
    )
    connection.execute(
        text("DELETE FROM dead_letters WHERE kind = 'message' AND mailbox_id = :mailbox AND provider_key = ANY(:keys)"),
        {"mailbox": mailbox_id, "keys": [row["k"] for row in rows]},
    )


def not_found_before(connection: Connection, mailbox_id: UUID, keys: Sequence[str], mark: str) -> dict[str, str]:
    """The keys, with their folders, that an earlier cycle could not find either, as the mark in their dead letters says."""
    return dict(query(connection, _NOT_FOUND_BEFORE, LostMessage, mailbox=mailbox_id, keys=list(keys), mark=mark))


def gap(connection: Connection, mailbox_id: UUID) -> list[str]:
    """Deletes the keys that are accounted for, and returns the rest."""
    values = {"mailbox": mailbox_id}
    connection.execute(_ACCOUNT, values)
    return query(connection, _UNACCOUNTED, str, mailbox=mailbox_id)


def account(connection: Connection, mailbox_id: UUID) -> list[FolderAccount]:
    """The ledger of a mailbox by folder, computed from rows rather than counters."""
    return query(connection, _ACCOUNTS, FolderAccount, mailbox=mailbox_id)
