"""Tombstones in two phases: the intention is in the packs before a deletion is committed, its confirmation after that.

Only confirmed tombstones count in a rebuild. A process that finds a committed but unconfirmed deletion confirms it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from archiver.db import sql
from archiver.db.ids import uuid7
from archiver.store.archive import Archive
from archiver.store.backend import Written
from archiver.store.journal import BEFORE_STAMPS, Stamp, Tombstones
from archiver.sync.ingest import statements
from archiver.sync.ingest.archive_state import next_stamp

_BATCH = 20
_ADD = """
    INSERT INTO tombstones (id, at, reason, actor, generation, number, copies, confirmed_at)
    VALUES (:id, :at, :reason, :actor, :generation, :number, :copies::jsonb, :confirmed_at)
    ON CONFLICT (id) DO UPDATE SET confirmed_at = coalesce(tombstones.confirmed_at, excluded.confirmed_at)"""
_UNCONFIRMED = """
    SELECT id, at, reason, actor, generation, number, copies FROM tombstones WHERE confirmed_at IS NULL
    ORDER BY id LIMIT :limit FOR UPDATE"""
_CONFIRMED = "UPDATE tombstones SET confirmed_at = clock_timestamp() WHERE id = ANY(:ids)"


@dataclass(frozen=True, slots=True)
class UnconfirmedDeletion:
    id: UUID
    at: datetime
    reason: str
    actor: str
    generation: int
    number: int
    copies: list[tuple[str, str, str]]
    """Mailbox, provider key and SHA-256 of each."""


def intend(connection: Connection, archive: Archive, deletion: Tombstones) -> Written:
    """Phase one, in the transaction of the deletion, once its locks are held. The caller ends with `record_pack`."""
    numbered = replace(deletion, id=deletion.id or uuid7(), stamp=next_stamp(connection))
    written = archive.append([numbered.record()])
    remember(connection, numbered)
    return written


def remember(connection: Connection, deletion: Tombstones) -> None:
    """Also for tombstones found in the packs; those of version 1 have no id and need no confirmation."""
    if deletion.id is None or deletion.stamp == BEFORE_STAMPS:
        return
    sql.run(
        connection,
        _ADD,
        id=deletion.id,
        at=deletion.at,
        reason=deletion.reason.replace("\0", "\ufffd"),
        actor=deletion.actor,
        generation=deletion.stamp.generation,
        number=deletion.stamp.number,
        copies=sql.rows([[str(mailbox_id), key, sha256.hex()] for mailbox_id, key, sha256 in deletion.copies]),
        confirmed_at=deletion.at if deletion.is_confirmed else None,
    )


def confirm(engine: Engine, archive: Archive) -> int:
    """Phase two, for every committed but unconfirmed deletion. Runs after a deletion, at the start, and before a compaction or
    backup. If it is killed, the next call repeats it; a second confirmation changes nothing."""
    done = 0
    while True:
        with engine.begin() as connection:
            rows = sql.query(connection, _UNCONFIRMED, UnconfirmedDeletion, limit=_BATCH)
            if not rows:
                return done
            confirmed = [_load_confirmed(row) for row in rows]
            written = archive.append([frame.record() for deletion in confirmed for frame in (deletion, deletion.mark())])
            sql.run(connection, _CONFIRMED, ids=[row.id for row in rows])
            sql.run(connection, statements.ADD_PACK, id=written.batch.pack_id, name=written.batch.pack_name)
            statements.record_pack(connection, written)
        done += len(rows)


def _load_confirmed(row: UnconfirmedDeletion) -> Tombstones:
    copies = tuple((UUID(mailbox_id), key, bytes.fromhex(sha256)) for mailbox_id, key, sha256 in row.copies)
    return Tombstones(row.at, row.reason, row.actor, copies, row.id, Stamp(row.generation, row.number), is_confirmed=True)
