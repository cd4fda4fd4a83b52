"""The end of a cycle: one row of history, the source's new state, and perhaps the next cycle, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import orjson
from sqlalchemy import Connection, text

from archiver.models.states import RunOutcome, SourceStatus
from archiver.queue.jobs import ContinuousSync
from archiver.sync import outbox, sessions
from archiver.sync.moves import SOURCE_MOVES, before

_TOTALS = text("""
    SELECT count(*) AS mailboxes, count(*) FILTER (WHERE state = 'done') AS completed,
           count(*) FILTER (WHERE state IN ('failed', 'cancelled')) AS not_completed,
           coalesce(sum(archived), 0) AS archived, coalesce(sum(duplicates), 0) AS duplicates,
           coalesce(sum(skipped), 0) AS skipped, coalesce(sum(deleted_here), 0) AS deleted_here,
           coalesce(sum(failed), 0) AS failed, coalesce(sum(missing), 0) AS missing, coalesce(sum(bytes), 0) AS bytes
    FROM sync_session_mailboxes WHERE session_id = :id""")

# The keys are flat and say whose they are (imap:alice@example.org:INBOX), so that one `||` merges them.
_MERGE_STATES = text("""
    UPDATE ingestion_sources s SET sync_state = s.sync_state || coalesce((
        SELECT jsonb_object_agg(e.key, e.value)
        FROM sync_session_mailboxes x JOIN mailboxes m ON m.id = x.mailbox_id, jsonb_each(m.sync_state) AS e
        WHERE x.session_id = :id AND e.key LIKE '%:%'), '{}'::jsonb)
    WHERE s.id = :source""")

_WRITE_RUN = text("""
    INSERT INTO sync_runs (id, source_id, outcome, is_initial_import, started_at, total_mailboxes, completed_mailboxes,
        failed_mailboxes, archived, duplicates, skipped, deleted_here, failed, missing, bytes, error_messages, detail)
    VALUES (:id, :source, :outcome, :initial, :started_at, :mailboxes, :completed, :not_completed, :archived, :duplicates,
        :skipped, :deleted_here, :failed, :missing, :bytes, CAST(:errors AS jsonb), CAST(:detail AS jsonb))
    ON CONFLICT (id) DO NOTHING""")

# A source that is looked at every minute would fill the history with cycles in which nothing came.
_FORGET_UNEVENTFUL = text("""
    DELETE FROM sync_runs WHERE source_id = :source AND finished_at < now() - interval '1 day' AND outcome = 'success'
        AND archived = 0 AND skipped = 0 AND deleted_here = 0 AND failed = 0 AND NOT is_initial_import""")

# 1, 2, 4 … 60 minutes after failures, and never what is read once; else at the next tick, or when its own schedule says
# (services.sources works that out)
_SETTLE_SOURCE = text("""
    UPDATE ingestion_sources SET status = :status, status_message = :message, last_finished_at = now(), updated_at = now(),
        failures = CASE WHEN :healthy THEN 0 ELSE failures + 1 END,
        next_due_at = CASE WHEN :healthy THEN now() WHEN :once THEN NULL
            ELSE now() + least(60, power(2, least(failures, 10))) * interval '1 minute' END
    WHERE id = :source AND status = ANY(:before)""")


@dataclass(frozen=True, slots=True)
class Ended:
    session_id: UUID
    source_id: UUID
    outcome: RunOutcome


def finish(connection: Connection, session_id: UUID, runs_once: frozenset[str] = frozenset()) -> Ended | None:
    """What `sync-cycle-finished` does. None: the session is not there any more, so it was done before.

    `runs_once`: the kinds of sources that are read once, and are `imported` then.
    """
    session = _lock(connection, session_id, runs_once)
    if session is None:
        return None
    totals = dict(connection.execute(_TOTALS, {"id": session_id}).mappings().one())
    outcome = judge(totals, _waiting_mailboxes(connection, session.source_id))
    ended = _end(connection, session, outcome, totals, message=_message(outcome, totals))
    connection.execute(_FORGET_UNEVENTFUL, {"source": session.source_id})
    if session.rerun_requested:
        outbox.announce(connection, ContinuousSync(session.source_id), source_id=session.source_id, caused_by=session_id)
    return ended


def abandon(
    connection: Connection, session_id: UUID, outcome: RunOutcome, message: str, runs_once: frozenset[str] = frozenset()
) -> Ended | None:
    """Ends a cycle that will not come to its end: stale, cancelled, or one whose source could not be listed."""
    session = _lock(connection, session_id, runs_once)
    if session is None:
        return None
    sessions.cancel(connection, session_id)
    totals = dict(connection.execute(_TOTALS, {"id": session_id}).mappings().one())
    return _end(connection, session, outcome, totals, message=message)


def judge(totals: dict[str, int], waiting_mailboxes: int = 0) -> RunOutcome:
    """Pure. A run with anything missing is never a success."""
    if totals["mailboxes"] and not totals["completed"]:
        return RunOutcome.FAILED
    if totals["not_completed"] or totals["failed"] or totals["missing"] or waiting_mailboxes:
        return RunOutcome.INCOMPLETE
    return RunOutcome.SUCCESS


def _message(outcome: RunOutcome, totals: dict[str, int]) -> str | None:
    if outcome is RunOutcome.SUCCESS:
        return None
    parts = {
        "mailbox(es) failed": totals["not_completed"],
        "message(s) could not be fetched": totals["failed"],
        "message(s) are missing": totals["missing"],
    }
    return ", ".join(f"{number} {what}" for what, number in parts.items() if number) or "some mailboxes wait for their next try"


@dataclass(frozen=True, slots=True)
class _Locked:
    id: UUID
    source_id: UUID
    is_initial_import: bool
    rerun_requested: bool
    created_at: object
    runs_once: bool


def _lock(connection: Connection, session_id: UUID, once: frozenset[str] = frozenset()) -> _Locked | None:
    row = connection.execute(
        text(
            "SELECT x.id, x.ingestion_source_id, x.is_initial_import, x.rerun_requested, x.created_at,"
            " s.kind = ANY(:once) AS runs_once"
            " FROM sync_sessions x JOIN ingestion_sources s ON s.id = x.ingestion_source_id WHERE x.id = :id FOR UPDATE OF x"
        ),
        {"id": session_id, "once": sorted(once)},
    ).first()
    return _Locked(*row) if row else None


def _waiting_mailboxes(connection: Connection, source_id: UUID) -> int:
    """Those that failed before, and whose pause is not over: this cycle passed them by."""
    statement = text("SELECT count(*) FROM mailboxes WHERE source_id = :id AND gone_at IS NULL AND next_due_at > now()")
    return int(connection.execute(statement, {"id": source_id}).scalar_one())


def _end(
    connection: Connection, session: _Locked, outcome: RunOutcome, totals: dict[str, int], *, message: str | None
) -> Ended:
    errors = sessions.first_errors(connection, session.id)
    if outcome in (RunOutcome.STALE, RunOutcome.FAILED) and message and not errors:
        errors = [{"mailbox": "", "error": message}]
    connection.execute(_MERGE_STATES, {"id": session.id, "source": session.source_id})
    connection.execute(
        _WRITE_RUN,
        {
            "id": session.id,
            "source": session.source_id,
            "outcome": str(outcome),
            "initial": session.is_initial_import,
            "started_at": session.created_at,
            "errors": orjson.dumps(errors).decode(),
            "detail": orjson.dumps({"message": message}).decode(),
            **totals,
        },
    )
    _settle_source(connection, session, outcome, message)
    connection.execute(text("DELETE FROM outbox WHERE session_id = :id AND queue = 'ingestion'"), {"id": session.id})
    connection.execute(text("DELETE FROM sync_sessions WHERE id = :id"), {"id": session.id})
    return Ended(session.id, session.source_id, outcome)


def _settle_source(connection: Connection, session: _Locked, outcome: RunOutcome, message: str | None) -> None:
    if outcome is RunOutcome.CANCELLED:
        return  # whoever cancelled it has set the status
    if outcome in (RunOutcome.FAILED, RunOutcome.STALE):
        status = SourceStatus.ERROR
    else:
        status = SourceStatus.IMPORTED if session.runs_once else SourceStatus.ACTIVE
    connection.execute(
        _SETTLE_SOURCE,
        {
            "source": session.source_id,
            "status": str(status),
            "message": message,
            "healthy": outcome in (RunOutcome.SUCCESS, RunOutcome.INCOMPLETE),
            "once": session.runs_once and outcome is RunOutcome.FAILED,
            "before": before(SOURCE_MOVES, status),
        },
    )
