"""A sync cycle in Postgres: claimed by inserting its session, divided into mailboxes, counted, finished exactly once.

Every function takes a connection inside the caller's transaction, and every change is guarded by the state it starts from: a
job that runs twice, late or concurrently with itself changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from archiver.db.ids import uuid7
from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import MailboxRunState, SessionState
from archiver.db.values import json_text
from archiver.queue.jobs import ProcessMailbox, SyncCycleFinished
from archiver.sync import listings, mailboxes, outbox
from archiver.sync.listings import CycleListing
from archiver.sync.mailboxes import ListedMailbox as ListedMailbox
from archiver.sync.transitions import (
    MAILBOX_BEGINS,
    MAILBOX_CANCELLED,
    MAILBOX_ENDS,
    MAILBOX_GIVEN_BACK,
    MAILBOX_GIVEN_UP,
    SESSION_PUBLISHED,
    before,
)

_KEPT_ERRORS = 20


_LOCK_SESSION = """
    SELECT id, ingestion_source_id AS source_id, state, is_initial_import FROM sync_sessions
    WHERE ingestion_source_id = :source FOR NO KEY UPDATE"""


@dataclass(frozen=True, slots=True)
class SyncSession:
    id: UUID
    source_id: UUID
    state: str
    is_initial_import: bool


def claim(connection: Connection, source_id: UUID, *, is_initial_import: bool) -> SyncSession:
    """The live session of the source, new or existing. The insert is the claim."""
    connection.execute(
        text(
            "INSERT INTO sync_sessions (id, ingestion_source_id, is_initial_import) VALUES (:id, :source, :initial)"
            " ON CONFLICT (ingestion_source_id) WHERE state IN ('listing', 'running') DO NOTHING"
        ),
        {"id": uuid7(), "source": source_id, "initial": is_initial_import},
    )
    return query_one(connection, _LOCK_SESSION, SyncSession, source=source_id)


def request_rerun(connection: Connection, source_id: UUID) -> bool:
    """`Sync now` during a cycle: the next one follows at once. False if no cycle is running."""
    statement = text("UPDATE sync_sessions SET rerun_requested = true WHERE ingestion_source_id = :source")
    return connection.execute(statement, {"source": source_id}).rowcount > 0


_SET_TOTAL = text("UPDATE sync_session_mailboxes SET total = :total WHERE session_id = :session AND mailbox_id = :mailbox")


def set_total(connection: Connection, session_id: UUID, mailbox_id: UUID, total: int) -> None:
    """How many messages the mailbox has, for its progress bar."""
    connection.execute(_SET_TOTAL, {"total": total, "session": session_id, "mailbox": mailbox_id})


def touch(connection: Connection, session_id: UUID) -> None:
    """The heartbeat, written at most every 15 seconds."""
    connection.execute(
        text(
            "UPDATE sync_sessions SET last_activity_at = now()"
            " WHERE id = :id AND last_activity_at < now() - interval '15 seconds'"
        ),
        {"id": session_id},
    )


# A mailbox that failed waits for its own due time; the cycle continues without it.
_ADD_SESSION_MAILBOXES = """
    WITH due AS (SELECT id, coalesce(next_due_at > now(), false) AS waits FROM mailboxes WHERE id = ANY(:ids)),
    added AS (INSERT INTO sync_session_mailboxes (session_id, mailbox_id) SELECT :session, id FROM due WHERE NOT waits
              ON CONFLICT DO NOTHING RETURNING 1)
    SELECT (SELECT count(*) FROM added) AS added, (SELECT count(*) FROM due WHERE waits) AS waiting"""


@dataclass(frozen=True, slots=True)
class CycleMailboxes:
    added: int
    waiting: int


_SESSION_MAILBOXES = "SELECT mailbox_id FROM sync_session_mailboxes WHERE session_id = :session ORDER BY mailbox_id"


def publish(
    connection: Connection,
    session: SyncSession,
    listed: Sequence[ListedMailbox],
    cause: UUID | None,
    *,
    is_whole: bool = False,
    left_out: Mapping[str, int] | None = None,
) -> int:
    """Writes everything that the cycle will do: mailboxes, their rows, their jobs; without any mailbox, the finish.

    `is_whole`: the source has no other mailboxes; those it had before are gone. `left_out`: how many more it has that are not
    archived, by rule. Returns the number of mailboxes; a session that has been published does not change.
    """
    moved = connection.execute(
        text("UPDATE sync_sessions SET state = :state, last_activity_at = now() WHERE id = :id AND state = ANY(:before)"),
        {"id": session.id, "state": str(SessionState.RUNNING), "before": before(SESSION_PUBLISHED, SessionState.RUNNING)},
    ).rowcount
    if not moved:
        return 0
    last = listings.load_last(connection, session.source_id)
    is_doubtful = is_whole and not listed and last.mailboxes > 0
    recorded = mailboxes.record(connection, session.source_id, listed, is_whole=is_whole and not is_doubtful)
    counted = query_one(connection, _ADD_SESSION_MAILBOXES, CycleMailboxes, session=session.id, ids=recorded.ids)
    listing = CycleListing.of(recorded, counted.waiting, left_out or {}, is_whole=is_whole, is_doubtful=is_doubtful)
    connection.execute(
        text("UPDATE sync_sessions SET total_mailboxes = :total, listing = CAST(:listing AS jsonb) WHERE id = :id"),
        {"total": counted.added, "listing": json_text(asdict(listing)), "id": session.id},
    )
    if counted.added:
        _announce_mailboxes(connection, session, cause)
    else:
        _announce_finish(connection, session.id, session.source_id)
    return counted.added


def _announce_mailboxes(connection: Connection, session: SyncSession, cause: UUID | None) -> None:
    jobs = [ProcessMailbox(session.id, found) for found in query(connection, _SESSION_MAILBOXES, UUID, session=session.id)]
    outbox.announce_all(connection, jobs, source_id=session.source_id, session_id=session.id, caused_by=cause)


def _announce_finish(connection: Connection, session_id: UUID, source_id: UUID) -> None:
    outbox.announce(connection, SyncCycleFinished(session_id), source_id=source_id, session_id=session_id, row_id=session_id)


@dataclass(frozen=True, slots=True)
class Slice:
    """The right to work on a mailbox, until the next slice begins."""

    session_id: UUID
    mailbox_id: UUID
    number: int
    row_id: UUID


_BEGIN_SLICE = """
    UPDATE sync_session_mailboxes SET state = 'running', slice = slice + 1, started_at = coalesce(started_at, now())
    WHERE session_id = :session AND mailbox_id = :mailbox AND state = ANY(:before)
    AND EXISTS (SELECT 1 FROM outbox WHERE id = :row) RETURNING slice"""


def begin_slice(connection: Connection, session_id: UUID, mailbox_id: UUID, row_id: UUID) -> Slice | None:
    """None if there is nothing to do: the row is settled, or the mailbox has ended or was cancelled."""
    values = {"session": session_id, "mailbox": mailbox_id, "row": row_id}
    allowed = before(MAILBOX_BEGINS, MailboxRunState.RUNNING)
    number = query_optional(connection, _BEGIN_SLICE, int, **values, before=allowed)
    if number is None:
        outbox.settle(connection, row_id)
        return None
    return Slice(session_id, mailbox_id, number, row_id)


def requeue(connection: Connection, current: Slice, source_id: UUID, available_at: datetime | None = None) -> bool:
    """Ends the slice and queues the mailbox again. False if another worker holds it; then nothing was changed."""
    queued = connection.execute(
        text(
            "UPDATE sync_session_mailboxes SET state = 'queued'"
            " WHERE session_id = :session AND mailbox_id = :mailbox AND slice = :slice AND state = ANY(:before)"
        ),
        {
            "session": current.session_id,
            "mailbox": current.mailbox_id,
            "slice": current.number,
            "before": before(MAILBOX_GIVEN_BACK, MailboxRunState.QUEUED),
        },
    )
    if not queued.rowcount:
        return False
    outbox.settle(connection, current.row_id)
    job = ProcessMailbox(current.session_id, current.mailbox_id)
    outbox.announce(
        connection,
        job,
        source_id=source_id,
        session_id=current.session_id,
        available_at=available_at,
        caused_by=current.row_id,
    )
    return True


def defer(connection: Connection, current: Slice, until: datetime) -> bool:
    """Ends the slice; its job stays in the queue until then. False if another worker holds it; then nothing was changed."""
    return (
        connection.execute(
            text(
                "WITH queued AS (UPDATE sync_session_mailboxes SET state = 'queued'"
                " WHERE session_id = :session AND mailbox_id = :mailbox AND slice = :slice AND state = ANY(:before)"
                " RETURNING 1)"
                " UPDATE outbox SET available_at = :until WHERE id = :row AND EXISTS (SELECT 1 FROM queued)"
            ),
            {
                "session": current.session_id,
                "mailbox": current.mailbox_id,
                "slice": current.number,
                "row": current.row_id,
                "until": until,
                "before": before(MAILBOX_GIVEN_BACK, MailboxRunState.QUEUED),
            },
        ).rowcount
        > 0
    )


# A single statement, because it runs for each mailbox of a cycle: the mailbox ends, its job is settled, the session counts it,
# and the relay learns that there is room for the next one.
# All mailboxes of a cycle are counted in one row, which must not stay locked during a disk sync. Should Postgres lose this
# commit, it loses all of it: the mailbox runs once more and finds nothing new.
_END_MAILBOX = """
    WITH ended AS (
        UPDATE sync_session_mailboxes SET state = :state, error_message = :error, finished_at = now()
        WHERE session_id = :session AND mailbox_id = :mailbox AND slice = :slice AND state = ANY(:before)
            AND (NOT :if_explained OR NOT EXISTS (SELECT 1 FROM unaccounted_keys WHERE mailbox_id = :mailbox))
        RETURNING 1),
    settled AS (DELETE FROM outbox WHERE id = :row AND EXISTS (SELECT 1 FROM ended))
    UPDATE sync_sessions SET completed_mailboxes = completed_mailboxes + :completed,
        failed_mailboxes = failed_mailboxes + :failed
    WHERE id = :session AND EXISTS (SELECT 1 FROM ended)
    RETURNING completed_mailboxes + failed_mailboxes = total_mailboxes AND state = 'running' AS is_complete,
        set_config('synchronous_commit', 'off', true) AS committing, pg_notify(:channel, 'ingestion') AS notified"""


@dataclass(frozen=True, slots=True)
class EndedMailbox:
    is_complete: bool
    """It was the last one of its session."""
    committing: str
    notified: object


def end_mailbox(
    connection: Connection, current: Slice, source_id: UUID, *, error: str | None = None, if_explained: bool = False
) -> bool:
    """Ends the mailbox as done, or as failed with an error; counts once. The last mailbox of a session announces the finish.

    `if_explained`: only if no listed message is unaccounted for. Returns False if nothing was changed.
    """
    state = MailboxRunState.DONE if error is None else MailboxRunState.FAILED
    ended = query_optional(
        connection,
        _END_MAILBOX,
        EndedMailbox,
        session=current.session_id,
        mailbox=current.mailbox_id,
        slice=current.number,
        row=current.row_id,
        state=str(state),
        before=before(MAILBOX_ENDS, state),
        error=error,
        completed=int(error is None),
        failed=int(error is not None),
        channel=outbox.CHANNEL,
        if_explained=if_explained,
    )
    if ended is None:
        return False
    if ended.is_complete:
        _announce_finish(connection, current.session_id, source_id)
    return True


_COUNT_FAILED = """
    UPDATE sync_sessions SET failed_mailboxes = failed_mailboxes + 1 WHERE id = :id
    RETURNING completed_mailboxes + failed_mailboxes = total_mailboxes AND state = 'running'"""


def fail_mailbox(connection: Connection, session_id: UUID, mailbox_id: UUID, source_id: UUID, error: str) -> bool:
    """For a job that failed permanently: ends the mailbox whatever slice it is in."""
    row = connection.execute(
        text(
            "UPDATE sync_session_mailboxes SET state = 'failed', slice = slice + 1, error_message = :error, finished_at = now()"
            " WHERE session_id = :session AND mailbox_id = :mailbox AND state = ANY(:before) RETURNING 1"
        ),
        {
            "session": session_id,
            "mailbox": mailbox_id,
            "error": error,
            "before": before(MAILBOX_GIVEN_UP, MailboxRunState.FAILED),
        },
    ).first()
    if row is None:
        return False
    if query_optional(connection, _COUNT_FAILED, bool, id=session_id):
        _announce_finish(connection, session_id, source_id)
    return True


def cancel(connection: Connection, session_id: UUID) -> None:
    """Cancels every unfinished mailbox of the cycle; a worker that holds one notices at its next batch."""
    connection.execute(
        text(
            "UPDATE sync_session_mailboxes SET state = 'cancelled', slice = slice + 1, finished_at = now()"
            " WHERE session_id = :id AND state = ANY(:before)"
        ),
        {"id": session_id, "before": before(MAILBOX_CANCELLED, MailboxRunState.CANCELLED)},
    )
    connection.execute(text("DELETE FROM outbox WHERE session_id = :id AND queue = 'ingestion'"), {"id": session_id})


_FIRST_ERRORS = """
    SELECT m.address AS mailbox, coalesce(s.error_message, '') AS error
    FROM sync_session_mailboxes s JOIN mailboxes m ON m.id = s.mailbox_id
    WHERE s.session_id = :id AND s.state = 'failed' ORDER BY s.finished_at LIMIT :limit"""


@dataclass(frozen=True, slots=True)
class MailboxError:
    mailbox: str
    error: str


def first_errors(connection: Connection, session_id: UUID) -> list[dict[str, str]]:
    """The errors of the first twenty mailboxes that failed."""
    return [asdict(error) for error in query(connection, _FIRST_ERRORS, MailboxError, id=session_id, limit=_KEPT_ERRORS)]
