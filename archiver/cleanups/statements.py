"""The SQL of clean-ups: the candidates with their conditions, and a log of each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from archiver.access.scope import MailScope
from archiver.cleanups.rows import CleanupCopy, CleanupCount, CleanupEntry, CleanupJob, NumberedOutcome
from archiver.db.sql import query, query_optional, run

_COLUMNS = """
    r.id, r.source_id, s.name AS source_name, r.requested_by, r.user_id, r.after_days, r.needs_backup,
    CASE WHEN r.state IN ('checking', 'deleting') AND w.state IN ('failed', 'cancelled') THEN 'stopped' ELSE r.state END
        AS state,
    r.messages, r.bytes, r.ready, r.deleted, r.gone, r.kept, coalesce(r.error, w.error) AS error, r.created_at, r.started_at,
    r.finished_at"""
_FROM = "FROM cleanups r JOIN ingestion_sources s ON s.id = r.source_id LEFT JOIN workflow_runs w ON w.id = r.run_id"
_LOAD = f"SELECT {_COLUMNS} {_FROM} WHERE r.id = :id"
_LIST = f"""SELECT {_COLUMNS} {_FROM} WHERE CAST(:source_id AS uuid) IS NULL OR r.source_id = :source_id
    ORDER BY r.id DESC LIMIT 200"""
_INSERT = """
    INSERT INTO cleanups (id, source_id, user_id, requested_by, after_days, needs_backup, run_id)
    VALUES (:id, :source_id, :user_id, :requested_by, :after_days, :needs_backup, :run_id)"""

# Old by the date of receipt, and in the archive for a day, so that a sync has seen the mailbox since.
_FREEZE = """
    INSERT INTO cleanup_messages (cleanup_id, number, mailbox_id, message_id, provider_key, folder)
    SELECT :id, row_number() OVER (ORDER BY c.mailbox_id, c.folder, c.id), c.mailbox_id, c.message_id, c.provider_key, c.folder
    FROM message_copies c JOIN mailboxes b ON b.id = c.mailbox_id JOIN messages m ON m.id = c.message_id
    WHERE b.source_id = :source_id AND b.gone_at IS NULL AND c.gone_at IS NULL AND c.deleted_at IS NULL
        AND coalesce(c.received_at, m.sort_at) < now() - make_interval(days => :days)
        AND c.created_at < now() - interval '1 day'"""
_TOTAL = """
    UPDATE cleanups SET messages = x.messages, bytes = x.bytes FROM (
        SELECT count(*) AS messages, CAST(coalesce(sum(m.size_bytes), 0) AS bigint) AS bytes
        FROM cleanup_messages r LEFT JOIN messages m ON m.id = r.message_id WHERE r.cleanup_id = :id) AS x
    WHERE id = :id"""
_CHOOSE = """
    SELECT r.number, r.message_id, r.mailbox_id, r.provider_key, m.sha256,
        c.id IS NOT NULL AND c.gone_at IS NULL AND c.deleted_at IS NULL AND m.id IS NOT NULL AS is_there,
        coalesce(coalesce(c.received_at, m.sort_at) < now() - make_interval(days => :days)
            AND c.created_at < now() - interval '1 day', false) AS is_old,
        EXISTS (SELECT 1 FROM restore_messages x WHERE x.message_id = r.message_id AND x.account_id = r.mailbox_id
            AND x.outcome = 'restored') AS was_restored,
        coalesce(o.is_verified, false) AS is_verified, coalesce(o.pack_ids, '{{}}') AS pack_ids,
        coalesce(o.ends, '{{}}') AS ends
    FROM cleanup_messages r LEFT JOIN messages m ON m.id = r.message_id
        LEFT JOIN message_copies c ON c.mailbox_id = r.mailbox_id AND c.provider_key = r.provider_key
            AND c.message_id = r.message_id
        LEFT JOIN LATERAL (
            SELECT bool_and(p.verified_at IS NOT NULL AND p.verified_at > m.archived_at AND p.state IN ('open', 'sealed'))
                    AS is_verified,
                array_agg(o.pack_id) FILTER (WHERE o.pack_id IS NOT NULL) AS pack_ids,
                array_agg(o.position + o.stored_bytes) FILTER (WHERE o.pack_id IS NOT NULL) AS ends
            FROM (SELECT m.sha256, 'message' AS kind
                UNION ALL SELECT y.part_sha256, 'part' FROM message_parts y WHERE y.message_id = m.id) AS f
                LEFT JOIN objects o ON o.sha256 = f.sha256 AND o.kind = f.kind LEFT JOIN packs p ON p.id = o.pack_id
        ) AS o ON true
    WHERE r.cleanup_id = :id AND r.number > :after AND {which} ORDER BY r.number LIMIT :limit"""
_UNCHECKED = _CHOOSE.format(which="r.outcome IS NULL")
_READY = _CHOOSE.format(which="r.outcome IN ('ready', 'deleting') AND r.mailbox_id = :mailbox_id")
_MAILBOXES = """
    SELECT DISTINCT mailbox_id FROM cleanup_messages WHERE cleanup_id = :id AND outcome IN ('ready', 'deleting')
    ORDER BY mailbox_id"""
_RECORD = """
    UPDATE cleanup_messages r SET outcome = :outcome, at = now(), reason = g.reason
    FROM unnest(CAST(:numbers AS bigint[]), CAST(:reasons AS text[])) AS g(number, reason)
    WHERE r.cleanup_id = :id AND r.number = g.number"""
_COUNTS = """
    SELECT outcome, count(*) AS copies FROM cleanup_messages WHERE cleanup_id = :id AND outcome IS NOT NULL GROUP BY outcome"""
_SET_COUNTS = "UPDATE cleanups SET ready = :ready, deleted = :deleted, gone = :gone, kept = :kept WHERE id = :id"
_ENTRIES = """
    SELECT r.number, r.message_id, m.subject, r.folder, r.outcome, r.reason, r.at
    FROM cleanup_messages r LEFT JOIN messages m ON m.id = r.message_id AND {visible}
    WHERE r.cleanup_id = :id AND r.number > :after AND r.outcome IS NOT NULL
        AND (CAST(:outcome AS text) IS NULL OR r.outcome = :outcome)
    ORDER BY r.number LIMIT :limit"""
_NUMBERED = """
    SELECT number, outcome FROM cleanup_messages
    WHERE cleanup_id = :id AND outcome = :outcome AND number = ANY(CAST(:numbers AS bigint[]))"""
_SET_STATE = """
    UPDATE cleanups SET state = :state, run_id = coalesce(CAST(:run_id AS uuid), run_id), error = NULL,
        started_at = CASE WHEN :state = 'deleting' THEN now() ELSE started_at END,
        finished_at = CASE WHEN :state IN ('ready', 'done') THEN now() END WHERE id = :id"""
_STOP = """
    UPDATE cleanups r SET state = 'stopped', error = w.error, finished_at = now()
    FROM workflow_runs w WHERE w.id = r.run_id AND w.id = :run_id AND r.state IN ('checking', 'deleting')"""
_OPEN = """
    SELECT c.id FROM cleanups c WHERE c.source_id = :source_id AND c.state IN ('checking', 'ready', 'deleting') AND NOT EXISTS (
        SELECT 1 FROM workflow_runs w WHERE w.id = c.run_id AND w.state IN ('failed', 'cancelled')) LIMIT 1"""
_LOCK = "SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('archiver:cleanups', 0))"


def insert(connection: Connection, values: Mapping[str, Any]) -> None:
    run(connection, _INSERT, **values)


def load(connection: Connection, cleanup_id: UUID) -> CleanupJob | None:
    return query_optional(connection, _LOAD, CleanupJob, id=cleanup_id)


def listed(connection: Connection, source_id: UUID | None) -> list[CleanupJob]:
    return query(connection, _LIST, CleanupJob, source_id=source_id)


def find_open(connection: Connection, source_id: UUID) -> UUID | None:
    """Until the end of this transaction, no clean-up is requested or started elsewhere."""
    run(connection, _LOCK)
    return query_optional(connection, _OPEN, UUID, source_id=source_id)


def freeze(connection: Connection, job: CleanupJob) -> None:
    run(connection, "DELETE FROM cleanup_messages WHERE cleanup_id = :id", id=job.id)
    run(connection, _FREEZE, id=job.id, source_id=job.source_id, days=job.after_days)
    run(connection, _TOTAL, id=job.id)


def unchecked(connection: Connection, job: CleanupJob, after: int, limit: int) -> list[CleanupCopy]:
    return query(connection, _UNCHECKED, CleanupCopy, id=job.id, days=job.after_days, after=after, limit=limit)


def ready(connection: Connection, job: CleanupJob, mailbox_id: UUID, after: int, limit: int) -> list[CleanupCopy]:
    values = {"id": job.id, "days": job.after_days, "mailbox_id": mailbox_id, "after": after, "limit": limit}
    return query(connection, _READY, CleanupCopy, **values)


def mailboxes(connection: Connection, cleanup_id: UUID) -> list[UUID]:
    return query(connection, _MAILBOXES, UUID, id=cleanup_id)


def record(connection: Connection, cleanup_id: UUID, outcome: str, reasons: Mapping[int, str | None]) -> None:
    """One line of the log for each number."""
    if reasons:
        run(connection, _RECORD, id=cleanup_id, outcome=outcome, numbers=list(reasons), reasons=list(reasons.values()))
        count(connection, cleanup_id)


def count(connection: Connection, cleanup_id: UUID) -> None:
    found = {one.outcome: one.copies for one in query(connection, _COUNTS, CleanupCount, id=cleanup_id)}
    names: Sequence[str] = ("ready", "deleted", "gone", "kept")
    run(connection, _SET_COUNTS, id=cleanup_id, **{name: found.get(name, 0) for name in names})  # type: ignore[call-overload]


def entries(
    connection: Connection, cleanup_id: UUID, scope: MailScope, outcome: str | None, after: int, limit: int
) -> list[CleanupEntry]:
    """Subjects only of messages that the reader may see."""
    statement = _ENTRIES.format(visible=scope.messages("m"))
    values = {"id": cleanup_id, "outcome": outcome, "after": after, "limit": limit}
    return query(connection, statement, CleanupEntry, **values, **scope.values())


def entries_of(connection: Connection, cleanup_id: UUID, outcome: str, numbers: Sequence[int]) -> list[NumberedOutcome]:
    """Those of the numbers that have this outcome."""
    return query(connection, _NUMBERED, NumberedOutcome, id=cleanup_id, outcome=outcome, numbers=list(numbers))


def set_state(connection: Connection, cleanup_id: UUID, state: str, run_id: UUID | None = None) -> None:
    run(connection, _SET_STATE, id=cleanup_id, state=state, run_id=run_id)


def stop(connection: Connection, run_id: UUID) -> None:
    run(connection, _STOP, run_id=run_id)


def remove(connection: Connection, cleanup_id: UUID) -> None:
    """Only one that has deleted nothing: the log of the others stays."""
    run(connection, "DELETE FROM cleanups WHERE id = :id AND deleted = 0", id=cleanup_id)
