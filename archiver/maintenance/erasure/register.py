"""What was erased, as hashes, in a file beside the archive and its backups: a restored older backup is cleaned with it.

A backup that was made before an erasure has neither its tombstones nor its receipt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine

from archiver.access import audit
from archiver.access.principal import Principal
from archiver.db import sql
from archiver.db.ids import message_uuid, uuid7
from archiver.errors import ArchiverError, UsageError
from archiver.retention import erasures
from archiver.retention.delete import Deletion, confirm
from archiver.store.archive import Archive
from archiver.sync.ingest.archive_state import archive_id

REGISTER = "erasures.jsonl"
_UNITS_AT_ONCE = 2_000
_COPIES = """
    SELECT c.id FROM message_copies c
    JOIN json_to_recordset(:rows::json) AS x(b uuid, m uuid) ON x.b = c.mailbox_id AND x.m = c.message_id
    WHERE c.deleted_at IS NULL ORDER BY c.id"""
# It is to be finished again: the packs of the backup still have the bytes.
_REMEMBER = """
    INSERT INTO erasures (id, name, reason, created_by, created_at, approved_by, approved_at, deleted_at)
    VALUES (:id, :name, :reason, :created_by, :created_at, :approved_by, :approved_at, :deleted_at)
    ON CONFLICT (id) DO NOTHING"""
_ADVANCE = """
    UPDATE erasures SET tombstone_ids = tombstone_ids || CAST(:tombstone_id AS uuid), copies = copies + :copies,
        messages = messages + :messages, finished_at = NULL WHERE id = :id"""
_ADD_OBJECTS = """
    INSERT INTO erasure_objects (erasure_id, sha256) SELECT CAST(:id AS uuid), unnest(CAST(:hashes AS bytea[]))
    ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class RegisteredErasure:
    id: UUID
    archive: UUID
    details: dict[str, Any]
    units: list[tuple[UUID, bytes]]
    """Mailbox, and SHA-256 of the message."""


def write_register(connection: Connection, folder: Path) -> None:
    """Replaces the file in the folder. It contains no more than hashes and the references of the cases."""
    draft = folder / f".{REGISTER}.{os.getpid()}"
    with draft.open("wb") as file:
        draft.chmod(0o600)
        file.write(register_content(connection))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / REGISTER)


def register_content(connection: Connection) -> bytes:
    return b"".join(orjson.dumps(entry, default=str) + b"\n" for entry in _entries(connection))


def _entries(connection: Connection) -> Iterator[dict[str, Any]]:
    ours = archive_id(connection)
    fields = ("name", "reason", "created_by", "created_at", "approved_by", "approved_at", "deleted_at")
    for erasure in reversed(erasures.list_erasures(connection, 1_000_000)):
        if erasure.deleted_at is not None:
            units = [line.split(" ") for line in erasures.erased_units(connection, erasure)]
            details = {name: getattr(erasure, name) for name in fields}
            yield {"erasure": erasure.id, "archive": ours, "details": details, "units": units}


def read_register(path: Path) -> list[RegisteredErasure]:
    """Raises ArchiverError for a damaged file: without it, erased mail would come back silently."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            entry = orjson.loads(line)
            units = [(UUID(mailbox), bytes.fromhex(sha256)) for mailbox, sha256 in entry["units"]]
            details = {
                name: datetime.fromisoformat(value) if name.endswith("_at") else str(value)
                for name, value in entry["details"].items()
            }
            found.append(RegisteredErasure(UUID(entry["erasure"]), UUID(entry["archive"]), details, units))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ArchiverError(f"{path}: line {number} is damaged ({error}): use another copy of the register") from error
    return found


def replay(engine: Engine, archive: Archive, principal: Principal, paths: Sequence[Path]) -> int:
    """Deletes what these registers name and the archive has again. Returns the number of copies. May be repeated."""
    found = {entry.id: entry for path in paths if path.is_file() for entry in read_register(path)}
    with engine.connect() as connection:
        ours = archive_id(connection)
    if foreign := next((entry for entry in found.values() if entry.archive != ours), None):
        raise UsageError(f"the register of erasures belongs to archive {foreign.archive}, not to this one ({ours})")
    return sum(_replay(engine, archive, principal, entry) for entry in found.values())


def _replay(engine: Engine, archive: Archive, principal: Principal, entry: RegisteredErasure) -> int:
    done = 0
    for start in range(0, len(entry.units), _UNITS_AT_ONCE):
        some = entry.units[start : start + _UNITS_AT_ONCE]
        rows = [{"b": mailbox_id, "m": message_uuid(sha256)} for mailbox_id, sha256 in some]
        with engine.begin() as connection:
            copy_ids = sql.query(connection, _COPIES, UUID, rows=sql.rows(rows))
            if not copy_ids:
                continue
            sql.run(connection, _REMEMBER, id=entry.id, **entry.details)
            tombstone_id = uuid7()
            reason = f"erasure {entry.id}"
            deletion = Deletion(connection, engine, archive, reason, principal, tombstone_id, is_replay=True)
            deleted = deletion.delete(copy_ids)
            sql.run(
                connection, _ADVANCE, id=entry.id, tombstone_id=tombstone_id, copies=deleted.copies, messages=deleted.messages
            )
            add_objects(connection, entry.id, deletion.objects)
            audit.record(connection, principal, "erasure.replayed", "erasure", entry.id, copies=deleted.copies)
        confirm(engine, archive)
        done += deleted.copies
    return done


def add_objects(connection: Connection, erasure_id: UUID, hashes: set[bytes]) -> None:
    if hashes:
        sql.run(connection, _ADD_OBJECTS, id=erasure_id, hashes=sorted(hashes))
