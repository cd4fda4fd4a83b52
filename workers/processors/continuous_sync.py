"""Starts a cycle of one source: claims it, lists its mailboxes, and announces one job for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from archiver.db.states import RunOutcome, SessionState
from archiver.logs import get_logger
from archiver.queue.jobs import SHORT_PAUSE_SECONDS, ContinuousSync, InitialImport, JobEnvelope, Later
from archiver.sources import access as source_access
from archiver.sources import imports
from archiver.sources import kinds as source_kinds
from archiver.sources import rows as source_rows
from archiver.sources import service as sources
from archiver.sources.mailboxes import connector_context
from archiver.sources.rows import Source
from archiver.sync import cycle, mailboxes, outbox, scheduler, sessions
from archiver.sync.heartbeat import Heartbeat
from archiver.sync.mailboxes import ListedMailbox
from archiver.sync.sessions import SyncSession
from connectors.errors import AuthFailed, ConnectorError, Throttled
from workers.context import WorkerContext

_LONGEST_PAUSE_SECONDS = 3600.0

log = get_logger("continuous-sync")


def process(job: ContinuousSync | InitialImport, work: WorkerContext, envelope: JobEnvelope) -> None:
    row_id = UUID(envelope.id)
    claimed = _claim(job, work, row_id)
    if claimed is None:
        return None
    source, session = claimed
    try:
        listed = _requested_mailboxes(job, work) or _list_mailboxes(source, session, work)
    except Throttled as pause:
        return _defer(job, session, work, row_id, pause.retry_after_seconds)
    except ConnectorError as error:
        return _fail_listing(source, session, work, row_id, error)
    with work.engine.begin() as connection:
        total = sessions.publish(
            connection, session, listed.mailboxes, row_id, is_whole=listed.is_whole, left_out=listed.left_out
        )
        outbox.settle(connection, row_id)
    log.info("cycle_started", source=str(source.id), session=str(session.id), mailboxes=total)
    return None


def _claim(job: ContinuousSync | InitialImport, work: WorkerContext, row_id: UUID) -> tuple[Source, SyncSession] | None:
    """None if there is nothing to do; then the row is settled. A running cycle is asked to run again."""
    with work.engine.begin() as connection:
        if not outbox.is_open(connection, row_id):
            return None
        source = source_rows.load(connection, job.source_id)
        if source is not None and source.kind in source_kinds.RUNS_ONCE:
            claimed = imports.claim(connection, source, job.import_id if isinstance(job, InitialImport) else "")
            if claimed is None:
                outbox.settle(connection, row_id)
            return claimed
        importing = isinstance(job, InitialImport)
        if source is None or not sources.begin_cycle(connection, source, importing=importing):
            outbox.settle(connection, row_id)
            return None
        session = sessions.claim(connection, source.id, is_initial_import=importing)
        if session.state != SessionState.LISTING:
            sessions.request_rerun(connection, source.id)
            outbox.settle(connection, row_id)
            return None
        return source, session


@dataclass(frozen=True, slots=True)
class _Listed:
    mailboxes: list[ListedMailbox]
    is_whole: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)


def _requested_mailboxes(job: ContinuousSync | InitialImport, work: WorkerContext) -> _Listed | None:
    """The mailboxes in which the watcher has seen new mail; None for a cycle over all mailboxes."""
    if isinstance(job, InitialImport) or not job.mailbox_ids:
        return None
    with work.engine.connect() as connection:
        ids = [UUID(part) for part in job.mailbox_ids.split(",")]
        found = mailboxes.load_listed(connection, job.source_id, ids)
    return _Listed(found) if found else None


def _list_mailboxes(source: Source, session: SyncSession, work: WorkerContext) -> _Listed:
    context = connector_context(work, source, Heartbeat(work.engine, session.id))
    connector = source_access.open_source(source, work.keyring, context)
    listed = []
    with work.idle_guard.guard(connector, context, work.settings.connector_idle_seconds):
        for box in connector.mailboxes():
            context.progress()
            listed.append(ListedMailbox(box.address, box.display_name, box.provider_id))
    if context.left_out:
        log.info("mailboxes_left_out", source=str(source.id), reasons=dict(context.left_out))
    # a source that is read once lists only its current import, but still has the mailboxes of earlier ones
    return _Listed(listed, source.kind not in source_kinds.RUNS_ONCE, context.left_out)


def _defer(
    job: ContinuousSync | InitialImport, session: SyncSession, work: WorkerContext, row_id: UUID, after_seconds: float
) -> None:
    """The provider asks for a pause: the same session continues its listing afterwards."""
    if after_seconds <= SHORT_PAUSE_SECONDS:
        raise Later(after_seconds)
    at = datetime.now(UTC) + timedelta(seconds=min(after_seconds, _LONGEST_PAUSE_SECONDS))
    with work.engine.begin() as connection:
        outbox.settle(connection, row_id)
        outbox.announce(connection, job, source_id=session.source_id, session_id=session.id, available_at=at, caused_by=row_id)


def _fail_listing(source: Source, session: SyncSession, work: WorkerContext, row_id: UUID, error: ConnectorError) -> None:
    """Refused credentials stop the source until it is edited; after any other error it is retried, with growing pauses."""
    log.warning("listing_failed", source=str(source.id), error=str(error))
    with work.engine.begin() as connection:
        reason = f"its mailboxes could not be listed: {error}"
        cycle.abandon(connection, session.id, RunOutcome.FAILED, reason, source_kinds.RUNS_ONCE)
        if isinstance(error, AuthFailed):
            scheduler.mark_source_broken(connection, source.id, f"the server rejected the credentials: {error}")
        outbox.settle(connection, row_id)
