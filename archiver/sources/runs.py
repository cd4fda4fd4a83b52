"""Sync cycles for display: the progress of running ones, and the outcomes of the last ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from archiver.db.sql import query, query_one, query_optional
from archiver.db.states import RunOutcome
from archiver.errors import NotReady
from archiver.sources.estimate import CycleFigures, estimate_seconds
from archiver.sources.kinds import pace_of

_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A running cycle, summed over its mailboxes."""

    session_id: UUID
    source_id: UUID
    source: str
    mailboxes: int
    ended_mailboxes: int
    seen: int
    total: int | None
    archived: int
    duplicates: int
    skipped: int
    failed: int
    bytes: int
    seconds: float
    left_seconds: float | None
    """How long the rest takes, as far as it can be estimated."""


@dataclass(frozen=True, slots=True)
class _RunningRow:
    session_id: UUID
    source_id: UUID
    source: str
    kind: str
    settings: dict[str, Any]
    mailboxes: int
    ended_mailboxes: int
    running_mailboxes: int
    counted_mailboxes: int
    counted_total: int
    seen: int
    total: int | None
    archived: int
    duplicates: int
    skipped: int
    failed: int
    bytes: int
    seconds: float
    learned_per_second: float | None

    def progress(self) -> RunProgress:
        names = [field.name for field in fields(RunProgress) if field.name != "left_seconds"]
        figures = CycleFigures(**{field.name: getattr(self, field.name) for field in fields(CycleFigures)})
        left = estimate_seconds(figures, pace_of(self.kind, self.settings))
        return RunProgress(**{name: getattr(self, name) for name in names}, left_seconds=left)


@dataclass(frozen=True, slots=True)
class MailboxProgress:
    address: str
    state: str
    seen: int
    total: int | None
    archived: int
    failed: int
    bytes: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Run:
    id: UUID
    outcome: RunOutcome
    started_at: datetime
    finished_at: datetime
    mailboxes: int
    failed_mailboxes: int
    archived: int
    duplicates: int
    skipped: int
    deleted_here: int
    """Skipped, because they were deleted from the archive."""
    failed: int
    missing: int
    bytes: int
    errors: list[dict[str, str]]
    gone_mailboxes: int
    """Mailboxes that the source no longer lists."""
    gone_addresses: list[str]
    """The first twenty of them."""
    message: str | None
    """Why it was not a success, where something else than its mailboxes says so."""

    @property
    def seconds(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()

    @property
    def deleted_phrase(self) -> str:
        """Empty if there were none."""
        return f", {self.deleted_here:,} skipped: deleted from the archive" if self.deleted_here else ""

    def figures(self) -> dict[str, Any]:
        """The output of `--wait --json`."""
        return {
            "run": str(self.id),
            "outcome": str(self.outcome),
            "archived": self.archived,
            "duplicates": self.duplicates,
            "failed": self.failed,
            "skipped": self.skipped,
            "deleted_here": self.deleted_here,
            "missing": self.missing,
            "bytes": self.bytes,
            "mailboxes": self.mailboxes,
            "failed_mailboxes": self.failed_mailboxes,
            "gone_mailboxes": self.gone_mailboxes,
            "seconds": round(self.seconds, 3),
            "errors": self.errors,
            "message": self.message,
        }


_PROGRESS = """
    SELECT x.id AS session_id, s.id AS source_id, s.name AS source, s.kind, s.settings, x.total_mailboxes AS mailboxes,
           count(*) FILTER (WHERE m.state = 'running') AS running_mailboxes, count(m.total) AS counted_mailboxes,
           coalesce(sum(m.total), 0)::bigint AS counted_total,
           (SELECT (r.archived / greatest(extract(epoch FROM r.finished_at - r.started_at), 1))::float FROM sync_runs r
            WHERE r.source_id = s.id AND r.archived >= 1000 ORDER BY r.finished_at DESC LIMIT 1) AS learned_per_second,
           x.completed_mailboxes + x.failed_mailboxes AS ended_mailboxes, coalesce(sum(m.seen), 0)::bigint AS seen,
           CASE WHEN bool_and(m.total IS NOT NULL) THEN sum(m.total)::bigint END AS total,
           coalesce(sum(m.archived), 0)::bigint AS archived, coalesce(sum(m.duplicates), 0)::bigint AS duplicates,
           coalesce(sum(m.skipped), 0)::bigint AS skipped, coalesce(sum(m.failed), 0)::bigint AS failed,
           coalesce(sum(m.bytes), 0)::bigint AS bytes, extract(epoch FROM now() - x.created_at)::float AS seconds
    FROM sync_sessions x JOIN ingestion_sources s ON s.id = x.ingestion_source_id
    LEFT JOIN sync_session_mailboxes m ON m.session_id = x.id
    WHERE CAST(:source AS uuid) IS NULL OR s.id = :source
    GROUP BY x.id, s.id ORDER BY x.id"""

_MAILBOXES = """
    SELECT b.address, m.state, m.seen, m.total, m.archived, m.failed, m.bytes, m.error_message AS error
    FROM sync_session_mailboxes m JOIN mailboxes b ON b.id = m.mailbox_id
    WHERE m.session_id = :session
    ORDER BY m.state = 'running' DESC, m.state = 'failed' DESC, m.started_at DESC NULLS LAST, b.address LIMIT :limit"""

_RUNS = """
    SELECT id, outcome, started_at, finished_at, total_mailboxes AS mailboxes, failed_mailboxes, archived, duplicates, skipped,
           deleted_here, failed, missing, bytes, error_messages AS errors,
           coalesce(CAST(detail->>'gone_mailboxes' AS bigint), 0) AS gone_mailboxes,
           coalesce(detail->'gone_addresses', '[]') AS gone_addresses, detail->>'message' AS message
    FROM sync_runs"""
_LAST_RUNS = f"""{_RUNS} WHERE source_id = :id AND (CAST(:before AS timestamptz) IS NULL OR finished_at < :before)
    ORDER BY finished_at DESC LIMIT :limit"""

_NOT_SEARCHABLE = "SELECT count(*) FROM messages WHERE first_run_id = :id AND search_state = ANY(:states)"


def running(connection: Connection, source_id: UUID | None = None) -> list[RunProgress]:
    return [row.progress() for row in query(connection, _PROGRESS, _RunningRow, source=source_id)]


def mailboxes(connection: Connection, session_id: UUID, limit: int = 10) -> list[MailboxProgress]:
    """Running mailboxes first, then failed ones."""
    return query(connection, _MAILBOXES, MailboxProgress, session=session_id, limit=limit)


def last_runs(connection: Connection, source_id: UUID, limit: int = 5, before: datetime | None = None) -> list[Run]:
    """Newest first; `before` continues after a run, by its end."""
    return query(connection, _LAST_RUNS, Run, id=source_id, limit=limit, before=before)


def load_run(connection: Connection, run_id: UUID) -> Run | None:
    return query_optional(connection, f"{_RUNS} WHERE id = :id", Run, id=run_id)


def newest_run(connection: Connection, source_id: UUID) -> UUID | None:
    return next((run.id for run in last_runs(connection, source_id, 1)), None)


class _Patience:
    """Tolerates an outage of Postgres around each poll, for a limited time, because the workers wait for it too."""

    def __init__(self) -> None:
        self._answered_at = time.monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OperationalError) or time.monotonic() - self._answered_at > _PATIENCE_SECONDS:
            self._answered_at = time.monotonic()
            return False
        return True


def wait_for_run(
    engine: Engine,
    source_id: UUID,
    after: UUID | None,
    timeout_seconds: float | None,
    look: Callable[[Connection], None],
    pause: Callable[[], object] = lambda: time.sleep(_LOOK_SECONDS),
) -> Run:
    """Waits for the first run that ends after `after`."""
    return wait_until_found(engine, lambda one: first_run(one, source_id, after), timeout_seconds, look, pause)


def first_run(connection: Connection, source_id: UUID, after: UUID | None, live: UUID | None = None) -> Run | None:
    """The first run that ended after run `after`, the newest at the time, and after session `live`, which was running then.

    No other cycle follows one that was cancelled.
    """
    newest = next(iter(last_runs(connection, source_id, 1)), None)
    if newest is None or newest.id == after or (newest.id == live and newest.outcome is not RunOutcome.CANCELLED):
        return None
    return newest


def wait_until_found(
    engine: Engine,
    find: Callable[[Connection], Run | None],
    timeout_seconds: float | None,
    look: Callable[[Connection], None],
    pause: Callable[[], object] = lambda: time.sleep(_LOOK_SECONDS),
) -> Run:
    """Polls Postgres, so that no event can be missed.

    `look` is called after each poll, for progress bars; `pause` then waits until the next poll is worthwhile.
    """
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    patience = _Patience()
    while True:
        with patience, engine.connect() as connection:
            found = find(connection)
            if found is not None:
                return found
            look(connection)
        if deadline is not None and time.monotonic() > deadline:
            raise NotReady(f"the sync did not end within {timeout_seconds:.0f} s; it continues in the background")
        pause()


def wait_until_searchable(
    engine: Engine, run_id: UUID, timeout_seconds: float | None, look: Callable[[int], None], *, full: bool = False
) -> None:
    """Waits until all messages of this run are searchable; `full`: including their attachments.

    `look` receives the number of remaining messages.
    """
    states = ["pending", "body"] if full else ["pending"]
    deadline = time.monotonic() + timeout_seconds if timeout_seconds else None
    patience, left = _Patience(), 0
    while True:
        with patience, engine.connect() as connection:
            left = query_one(connection, _NOT_SEARCHABLE, int, id=run_id, states=states)
            if not left:
                return
            look(left)
        if deadline is not None and time.monotonic() > deadline:
            raise NotReady(f"{left:,} archived messages are not searchable after {timeout_seconds:.0f} s; indexing continues")
        time.sleep(_LOOK_SECONDS)
