"""The queue of imports: requested as rows, bound to a session one at a time, ended with the outcome of their run.

Every function takes a connection inside the caller's transaction. The source's row is the lock: requesting, beginning and
ending an import all hold it, so the end of an import always starts the next one in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Connection, text

from archiver.db.ids import uuid7
from archiver.db.sql import query, query_optional
from archiver.db.states import RunOutcome, SourceStatus
from archiver.errors import UsageError
from archiver.queue.jobs import InitialImport
from archiver.sync import outbox

_LOCK = "SELECT status FROM ingestion_sources WHERE id = :source FOR NO KEY UPDATE"

_REQUEST = text("""
    INSERT INTO imports (id, source_id, number, mailbox, settings, requested_by, user_id, upload_folder)
    SELECT :id, s.id, greatest(coalesce((SELECT max(number) FROM imports WHERE source_id = s.id), 0),
        coalesce(CAST(s.settings->>'number' AS bigint), 0)) + 1, :mailbox, CAST(:settings AS jsonb), :by, :user_id, :folder
    FROM ingestion_sources s WHERE s.id = :source""")

# Open: no outcome and no live session. (A session ends together with its import, unless an earlier release ended it.)
_OPEN = """i.outcome IS NULL AND (i.session_id IS NULL
    OR NOT EXISTS (SELECT 1 FROM sync_sessions o WHERE o.id = i.session_id))"""

# Announced: by a job that names an open import, or by a job that takes the next one.
_NEXT = f"""
    SELECT i.source_id, i.id FROM imports i JOIN ingestion_sources s ON s.id = i.source_id
    WHERE {_OPEN} AND s.removed_at IS NULL AND s.status <> 'paused'
        AND NOT EXISTS (SELECT 1 FROM sync_sessions x WHERE x.ingestion_source_id = s.id)
        AND NOT EXISTS (
            SELECT 1 FROM outbox o LEFT JOIN imports n ON n.id = CAST(nullif(o.payload->'data'->>'import_id', '') AS uuid)
            WHERE o.source_id = s.id AND o.job IN ('continuous-sync', 'initial-import')
                AND (n.id IS NULL OR n.outcome IS NULL))"""  # noqa: S608
_NEXT_OF_SOURCE = f"{_NEXT} AND s.id = :source ORDER BY i.number LIMIT 1"
_NEXT_OF_ALL = f"SELECT DISTINCT ON (source_id) source_id, id FROM ({_NEXT} ORDER BY i.source_id, i.number) AS n"  # noqa: S608

# The import of the session that is being listed; otherwise the requested one; otherwise the one that has waited longest.
_PICK = f"""
    SELECT i.id, i.settings || jsonb_build_object('number', i.number) AS settings FROM imports i
    LEFT JOIN sync_sessions x ON x.id = i.session_id AND x.state = 'listing'
    WHERE i.source_id = :source AND i.outcome IS NULL AND (x.id IS NOT NULL OR ({_OPEN}))
        AND NOT EXISTS (SELECT 1 FROM sync_sessions r WHERE r.ingestion_source_id = :source AND r.state = 'running')
    ORDER BY x.id IS NULL, CAST(i.id AS text) <> :wanted, i.number LIMIT 1"""  # noqa: S608

# An import requested by a process of an earlier release: its settings are in the source's row.
_ADOPT = text("""
    INSERT INTO imports (id, source_id, number, mailbox, settings, requested_by, user_id, upload_folder)
    SELECT :id, s.id, coalesce(CAST(s.settings->>'number' AS bigint), 0), s.settings->>'mailbox', s.settings - 'number',
        'local-operator', s.owner_id, substring(s.settings->'paths'->>0 FROM '/uploads/(import-[0-9a-f-]{36})/')
    FROM ingestion_sources s
    WHERE s.id = :source AND jsonb_typeof(s.settings->'paths') = 'array' AND s.settings->>'mailbox' IS NOT NULL
    ON CONFLICT (source_id, number) DO NOTHING""")

_BIND = text("""
    UPDATE imports SET session_id = :session, started_at = coalesce(started_at, now())
    WHERE id = :id AND outcome IS NULL
        AND NOT EXISTS (SELECT 1 FROM imports o WHERE o.session_id = :session AND o.id <> :id)
        AND EXISTS (SELECT 1 FROM sync_sessions x WHERE x.id = :session AND x.state = 'listing')""")

# Failures of the previous import do not delay this one.
_FORGIVE = text("""
    UPDATE mailboxes SET failures = 0, next_due_at = NULL, status_message = NULL
    WHERE source_id = :source AND (next_due_at IS NOT NULL OR status_message IS NOT NULL OR failures > 0)""")

_END = text("""
    UPDATE imports i SET outcome = :outcome, message = :message, finished_at = now(), tally = coalesce((
        SELECT jsonb_agg(m.sync_state->('files:' || lower(m.address))) FROM mailboxes m
        WHERE m.source_id = i.source_id AND m.sync_state->('files:' || lower(m.address))->>'turn' LIKE '%:' || i.number),
        '[]'::jsonb)
    WHERE i.session_id = :session AND i.outcome IS NULL RETURNING i.id""")
_WAIT_AGAIN = text("UPDATE imports SET session_id = NULL WHERE session_id = :session AND outcome IS NULL")

# Their retry depends on the file, not on time: the next import may read other files.
_PUT_OFF = text("""
    UPDATE dead_letters SET next_try_at = now() + interval '100 years'
    WHERE source_id = :source AND kind = 'message' AND discarded_at IS NULL""")

_FAIL = text(f"""
    UPDATE imports i SET outcome = 'failed', message = :message, finished_at = now() WHERE i.id = :id AND {_OPEN}""")  # noqa: S608
_CANCEL = text(f"""
    UPDATE imports i SET outcome = 'cancelled', message = :message, finished_at = now()
    WHERE i.source_id = :source AND {_OPEN}""")  # noqa: S608


_UNFINISHED = "SELECT id FROM imports WHERE source_id = :source AND outcome IS NULL LIMIT 1"
_SETTINGS = "SELECT settings || jsonb_build_object('number', number) FROM imports WHERE session_id = :id"


@dataclass(frozen=True, slots=True)
class WaitingImport:
    source_id: UUID
    id: UUID


@dataclass(frozen=True, slots=True)
class RepeatableImport:
    id: UUID
    mailbox: str
    settings: dict[str, Any]
    upload_folder: str | None


@dataclass(frozen=True, slots=True)
class PickedImport:
    """What an import reads."""

    id: UUID
    settings: dict[str, Any]


def lock(connection: Connection, source_id: UUID) -> SourceStatus | None:
    """Locks the source until the transaction ends. None if there is no such source."""
    return query_optional(connection, _LOCK, SourceStatus, source=source_id)


def request(
    connection: Connection,
    source_id: UUID,
    mailbox: str,
    settings: Mapping[str, Any],
    by: str,
    user_id: UUID | None = None,
    import_id: UUID | None = None,
    upload_folder: str | None = None,
) -> UUID:
    """Queues an import. It starts at once if no other import of the source is in progress."""
    import_id = import_id or uuid7()
    lock(connection, source_id)
    values = {"id": import_id, "source": source_id, "mailbox": mailbox, "by": by, "user_id": user_id, "folder": upload_folder}
    connection.execute(_REQUEST, {**values, "settings": orjson.dumps(dict(settings)).decode()})
    start_next(connection, source_id)
    return import_id


def start_next(connection: Connection, source_id: UUID, caused_by: UUID | None = None) -> None:
    """Announces the oldest waiting import, unless one of this source is running or announced. The caller holds the lock."""
    row = query_optional(connection, _NEXT_OF_SOURCE, WaitingImport, source=source_id)
    if row is not None:
        job = InitialImport(row.source_id, str(row.id))
        outbox.announce(connection, job, source_id=row.source_id, caused_by=caused_by)


def start_orphaned(connection: Connection) -> int:
    """At each tick, starts waiting imports that no job would start. There should be none."""
    rows = query(connection, _NEXT_OF_ALL, WaitingImport)
    for row in rows:
        lock(connection, row.source_id)
        start_next(connection, row.source_id)
    return len(rows)


def pick(connection: Connection, source_id: UUID, wanted: str) -> PickedImport | None:
    """The import that the next session of the source reads, or None. Locks the source."""
    lock(connection, source_id)
    connection.execute(_ADOPT, {"id": uuid7(), "source": source_id})
    picked = query_optional(connection, _PICK, PickedImport, source=source_id, wanted=wanted)
    if picked is None:
        connection.execute(text("UPDATE ingestion_sources SET next_due_at = NULL WHERE id = :id"), {"id": source_id})
        return None
    return picked


def bind(connection: Connection, import_id: UUID, source_id: UUID, session_id: UUID) -> bool:
    """Assigns the import to the session. False if the session reads another import, or has been published already."""
    if not connection.execute(_BIND, {"id": import_id, "session": session_id}).rowcount:
        return False
    connection.execute(_FORGIVE, {"source": source_id})
    return True


def load_settings(connection: Connection, session_id: UUID) -> dict[str, Any] | None:
    """The settings of the import that a session reads; None for a session started by an earlier release."""
    return query_optional(connection, _SETTINGS, dict, id=session_id)


def end(connection: Connection, session_id: UUID, source_id: UUID, outcome: RunOutcome, message: str | None) -> None:
    """Ends the import together with its session, and starts the next import, in one transaction.

    A session is cancelled when its source is paused or removed: the import goes back to the queue, and removing the source
    cancels every waiting import.
    """
    lock(connection, source_id)
    if outcome is RunOutcome.CANCELLED:
        connection.execute(_WAIT_AGAIN, {"session": session_id})
        return
    connection.execute(_END, {"session": session_id, "outcome": str(outcome), "message": message})
    connection.execute(_PUT_OFF, {"source": source_id})
    start_next(connection, source_id, caused_by=session_id)


def fail(connection: Connection, import_id: UUID, source_id: UUID, reason: str) -> None:
    """Fails an import whose job failed permanently before it could begin."""
    lock(connection, source_id)
    connection.execute(_FAIL, {"id": import_id, "message": reason})
    start_next(connection, source_id)


def cancel_waiting(connection: Connection, source_id: UUID, reason: str) -> None:
    connection.execute(_CANCEL, {"source": source_id, "message": reason})


_LAST_REPEATABLE = """
    SELECT id, mailbox, settings, upload_folder FROM imports
    WHERE source_id = :source AND discarded_at IS NULL AND upload_removed_at IS NULL
    ORDER BY outcome = 'success', number DESC LIMIT 1"""


def repeat(connection: Connection, source_id: UUID, by: str, user_id: UUID | None) -> UUID | None:
    """Repeats the last import that did not succeed, or else the last one. None if an import is in progress or waiting.

    Raises UsageError if there is nothing to repeat.
    """
    lock(connection, source_id)
    start_next(connection, source_id)
    if query(
        connection, "SELECT id FROM imports WHERE source_id = :source AND outcome IS NULL LIMIT 1", UUID, source=source_id
    ):
        return None
    row = query_optional(connection, _LAST_REPEATABLE, RepeatableImport, source=source_id)
    if row is None:
        raise UsageError("no import is left to repeat: start another one with `archiver import` or an upload")
    again = uuid7()
    connection.execute(text("UPDATE imports SET upload_folder = NULL WHERE id = :id"), {"id": row.id})
    request(connection, source_id, row.mailbox, row.settings, by, user_id, again, row.upload_folder)
    connection.execute(text("UPDATE uploads SET import_id = :again WHERE import_id = :id"), {"id": row.id, "again": again})
    return again
