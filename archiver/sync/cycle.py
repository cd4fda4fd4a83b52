"""Ends a cycle: writes its run, updates the source and, if requested, announces the next cycle, in one transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.sql import query_one, query_optional
from archiver.db.states import RunOutcome, SourceStatus
from archiver.db.values import json_text
from archiver.quantity import quantity
from archiver.queue.jobs import ContinuousSync
from archiver.sync import import_queue, listings, outbox, sessions
from archiver.sync.listings import CycleListing
from archiver.sync.transitions import CYCLE_ENDS, before

_TOTALS = """
    SELECT count(*) AS mailboxes, count(*) FILTER (WHERE state = 'done') AS completed,
           count(*) FILTER (WHERE state IN ('failed', 'cancelled')) AS not_completed,
           coalesce(sum(archived), 0)::bigint AS archived, coalesce(sum(duplicates), 0)::bigint AS duplicates,
           coalesce(sum(skipped), 0)::bigint AS skipped, coalesce(sum(deleted_here), 0)::bigint AS deleted_here,
           coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(missing), 0)::bigint AS missing,
           coalesce(sum(bytes), 0)::bigint AS bytes
    FROM sync_session_mailboxes WHERE session_id = :id"""

_LOCK = """
    SELECT x.id, x.ingestion_source_id AS source_id, x.is_initial_import, x.rerun_requested, x.created_at,
        x.state = 'running' AND x.completed_mailboxes + x.failed_mailboxes = x.total_mailboxes AS is_complete,
        s.kind = ANY(:once) OR EXISTS (SELECT 1 FROM imports i WHERE i.source_id = s.id) AS runs_once,
        x.listing AS stored_listing
    FROM sync_sessions x JOIN ingestion_sources s ON s.id = x.ingestion_source_id WHERE x.id = :id FOR UPDATE OF x"""
_WAITING = "SELECT count(*) FROM mailboxes WHERE source_id = :id AND gone_at IS NULL AND next_due_at > now()"

_WRITE_RUN = text("""
    INSERT INTO sync_runs (id, source_id, outcome, is_initial_import, started_at, total_mailboxes, completed_mailboxes,
        failed_mailboxes, archived, duplicates, skipped, deleted_here, failed, missing, bytes, error_messages, detail)
    VALUES (:id, :source, :outcome, :initial, :started_at, :mailboxes, :completed, :not_completed, :archived, :duplicates,
        :skipped, :deleted_here, :failed, :missing, :bytes, CAST(:errors AS jsonb), CAST(:detail AS jsonb))
    ON CONFLICT (id) DO NOTHING""")

# A source that is polled every minute would fill the history with runs in which nothing happened.
_FORGET_UNEVENTFUL = text("""
    DELETE FROM sync_runs WHERE source_id = :source AND finished_at < now() - interval '1 day' AND outcome = 'success'
        AND archived = 0 AND skipped = 0 AND deleted_here = 0 AND failed = 0 AND NOT is_initial_import
        AND coalesce(CAST(detail->>'gone_mailboxes' AS bigint), 0) = 0""")

# After failures the source is due again in 1, 2, 4 … 60 minutes, or never if it is read only once. Otherwise it is due at the
# next tick, or when its own schedule says so (archiver.sources.service computes that).
_SETTLE_SOURCE = text("""
    UPDATE ingestion_sources SET status = :status, status_message = :message, last_finished_at = now(), updated_at = now(),
        failures = CASE WHEN :healthy THEN 0 ELSE failures + 1 END,
        next_due_at = CASE WHEN :healthy THEN now() WHEN :once THEN NULL
            ELSE now() + least(60, power(2, least(failures, 10))) * interval '1 minute' END
    WHERE id = :source AND status = ANY(:before)""")


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Summed over the mailboxes of a cycle."""

    mailboxes: int = 0
    completed: int = 0
    not_completed: int = 0
    archived: int = 0
    duplicates: int = 0
    skipped: int = 0
    deleted_here: int = 0
    failed: int = 0
    missing: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    session_id: UUID
    source_id: UUID
    outcome: RunOutcome


def finish(connection: Connection, session_id: UUID, runs_once: frozenset[str] = frozenset()) -> Ended | None:
    """Ends a complete cycle (the work of `sync-cycle-finished`). None if there is nothing to end: the session no longer exists,
    because an earlier call ended it, or some of its mailboxes are still open.

    `runs_once`: the kinds of sources that are read once and then become `imported`.
    """
    session = _lock(connection, session_id, runs_once)
    if session is None or not session.is_complete:
        return None
    totals = query_one(connection, _TOTALS, RunTotals, id=session_id)
    overlooked = _count_overlooked(session.listing, totals.mailboxes)
    outcome = run_outcome(totals, _waiting_mailboxes(connection, session.source_id) + overlooked)
    ended = _end(connection, session, outcome, totals, message=_message(outcome, totals, session.listing))
    connection.execute(_FORGET_UNEVENTFUL, {"source": session.source_id})
    return ended


def abandon(
    connection: Connection, session_id: UUID, outcome: RunOutcome, message: str, runs_once: frozenset[str] = frozenset()
) -> Ended | None:
    """Ends a cycle that can't complete: stale, cancelled, or of a source whose mailboxes could not be listed."""
    sessions.cancel(connection, session_id)  # lock mailboxes before their session, as `end_mailbox` does
    session = _lock(connection, session_id, runs_once)
    if session is None:
        return None
    totals = query_one(connection, _TOTALS, RunTotals, id=session_id)
    return _end(connection, session, outcome, totals, message=message)


def run_outcome(totals: RunTotals, other_mailboxes: int = 0) -> RunOutcome:
    """Pure. A run with anything missing is never a success. `other_mailboxes`: mailboxes that the cycle did not visit."""
    if totals.mailboxes and not totals.completed:
        return RunOutcome.FAILED
    if totals.not_completed or totals.failed or totals.missing or other_mailboxes:
        return RunOutcome.INCOMPLETE
    return RunOutcome.SUCCESS


def _count_overlooked(listing: CycleListing, total: int) -> int:
    return listing.overlooked(total) or int(listing.is_doubtful)


def _message(outcome: RunOutcome, totals: RunTotals, listing: CycleListing) -> str | None:
    if outcome is RunOutcome.SUCCESS:
        return None
    if listing.is_doubtful:
        return "the source listed no mailboxes, although it had some before: check its permissions and selection rules"
    parts = [
        ("listed mailbox", "not synced", listing.overlooked(totals.mailboxes)),
        ("mailbox", "failed", totals.not_completed),
        ("message", "could not be fetched", totals.failed),
        ("message", "missing", totals.missing),
    ]
    return (
        ", ".join(f"{quantity(number, noun)} {what}" for noun, what, number in parts if number)
        or "some mailboxes are waiting for their next attempt"
    )


@dataclass(frozen=True, slots=True)
class _Locked:
    id: UUID
    source_id: UUID
    is_initial_import: bool
    rerun_requested: bool
    created_at: datetime
    is_complete: bool
    runs_once: bool
    stored_listing: Any

    @property
    def listing(self) -> CycleListing:
        return CycleListing.read(self.stored_listing)


def _lock(connection: Connection, session_id: UUID, once: frozenset[str] = frozenset()) -> _Locked | None:
    return query_optional(connection, _LOCK, _Locked, id=session_id, once=sorted(once))


def _waiting_mailboxes(connection: Connection, source_id: UUID) -> int:
    """Counts mailboxes that failed earlier and whose pause is not over: this cycle did not visit them."""
    return query_one(connection, _WAITING, int, id=source_id)


def _end(connection: Connection, session: _Locked, outcome: RunOutcome, totals: RunTotals, *, message: str | None) -> Ended:
    errors = sessions.first_errors(connection, session.id)
    if outcome in (RunOutcome.STALE, RunOutcome.FAILED) and message and not errors:
        errors = [{"mailbox": "", "error": message}]
    listings.store_last(connection, session.source_id, session.listing)
    connection.execute(
        _WRITE_RUN,
        {
            "id": session.id,
            "source": session.source_id,
            "outcome": str(outcome),
            "initial": session.is_initial_import,
            "started_at": session.created_at,
            "errors": json_text(errors),
            "detail": json_text({"message": message, **_listing_detail(session.listing)}),
            **asdict(totals),
        },
    )
    _settle_source(connection, session, outcome, message)
    connection.execute(text("DELETE FROM outbox WHERE session_id = :id AND queue = 'ingestion'"), {"id": session.id})
    connection.execute(text("DELETE FROM sync_sessions WHERE id = :id"), {"id": session.id})
    if session.runs_once:
        import_queue.end(connection, session.id, session.source_id, outcome, message)
    elif session.rerun_requested and outcome is not RunOutcome.CANCELLED:
        outbox.announce(connection, ContinuousSync(session.source_id), source_id=session.source_id, caused_by=session.id)
    return Ended(session.id, session.source_id, outcome)


def _listing_detail(listing: CycleListing) -> dict[str, object]:
    """What the run reports about mailboxes that are not part of it."""
    gone = {"gone_mailboxes": listing.gone, "gone_addresses": listing.gone_addresses} if listing.gone else {}
    return {**gone, **({"left_out": listing.left_out} if listing.left_out else {})}


def _settle_source(connection: Connection, session: _Locked, outcome: RunOutcome, message: str | None) -> None:
    if outcome is RunOutcome.CANCELLED:
        return  # the caller that cancelled the cycle has set the status
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
            "once": session.runs_once,
            "before": before(CYCLE_ENDS, status),
        },
    )
