"""Starts a cycle of one source: claims it, lists its mailboxes, and announces one job for each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from archiver.logs import get_logger
from archiver.models.states import RunOutcome, SessionState
from archiver.queue.jobs import SHORT_PAUSE_SECONDS, ContinuousSync, Envelope, InitialImport, Later
from archiver.services import imports, source_access, source_kinds, source_rows, sources
from archiver.services.source_rows import Source
from archiver.sync import cycle, mailboxes, outbox, sessions, tick
from archiver.sync.mailboxes import ListedMailbox
from archiver.sync.sessions import SessionRow
from connectors.errors import AuthFailed, ConnectorError, Throttled
from workers.work import HEARTBEAT_SECONDS, ConnectorContext, Work

_LONGEST_PAUSE_SECONDS = 3600.0

log = get_logger("continuous-sync")


def process(job: ContinuousSync | InitialImport, work: Work, envelope: Envelope) -> None:
    row_id = UUID(envelope.id)
    claimed = _claim(job, work, row_id)
    if claimed is None:
        return None
    source, session = claimed
    try:
        listed = _told(job, work) or _list_mailboxes(source, session, work)
    except Throttled as pause:
        return _put_off(job, session, work, row_id, pause.retry_after_seconds)
    except ConnectorError as error:
        return _could_not_list(source, session, work, row_id, error)
    with work.engine.begin() as connection:
        total = sessions.publish(
            connection, session, listed.mailboxes, row_id, is_whole=listed.is_whole, left_out=listed.left_out
        )
        outbox.settle(connection, row_id)
    log.info("cycle_started", source=str(source.id), session=str(session.id), mailboxes=total)
    return None


def _claim(job: ContinuousSync | InitialImport, work: Work, row_id: UUID) -> tuple[Source, SessionRow] | None:
    """None: there is nothing to do, and the row is settled. A cycle that runs already is asked for another one."""
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


def _told(job: ContinuousSync | InitialImport, work: Work) -> _Listed | None:
    """The mailboxes in which the watcher has seen new mail; None for a cycle over all of them."""
    if isinstance(job, InitialImport) or not job.mailbox_ids:
        return None
    with work.engine.connect() as connection:
        ids = [UUID(part) for part in job.mailbox_ids.split(",")]
        found = mailboxes.listed_again(connection, job.source_id, ids)
    return _Listed(found) if found else None


def _list_mailboxes(source: Source, session: SessionRow, work: Work) -> _Listed:
    told_at = time.monotonic()

    def heartbeat(_: int | None) -> None:
        """Told with each mailbox; Postgres hears it now and then."""
        nonlocal told_at
        if time.monotonic() - told_at > HEARTBEAT_SECONDS:
            told_at = time.monotonic()
            with work.engine.begin() as connection:
                sessions.touch(connection, session.id)

    context = ConnectorContext(work, source, work.settings.slice_seconds, heartbeat)
    connector = source_access.open_source(source, work.keyring, context)
    listed = []
    with work.watchman.over(connector, context, work.settings.connector_idle_seconds):
        for box in connector.mailboxes():
            context.progress()
            listed.append(ListedMailbox(box.address, box.display_name, box.provider_id))
    if context.left_out:
        log.info("mailboxes_left_out", source=str(source.id), reasons=dict(context.left_out))
    # a source that is read once lists what it reads now, and still has what it brought before
    return _Listed(listed, source.kind not in source_kinds.RUNS_ONCE, context.left_out)


def _put_off(job: ContinuousSync | InitialImport, session: SessionRow, work: Work, row_id: UUID, after_seconds: float) -> None:
    """The provider asks for a pause: the same session goes on with its list after it."""
    if after_seconds <= SHORT_PAUSE_SECONDS:
        raise Later(after_seconds)
    at = datetime.now(UTC) + timedelta(seconds=min(after_seconds, _LONGEST_PAUSE_SECONDS))
    with work.engine.begin() as connection:
        outbox.settle(connection, row_id)
        outbox.announce(connection, job, source_id=session.source_id, session_id=session.id, available_at=at, caused_by=row_id)


def _could_not_list(source: Source, session: SessionRow, work: Work, row_id: UUID, error: ConnectorError) -> None:
    """Refused credentials stop the source until it is edited; anything else is tried again, with growing pauses."""
    log.warning("listing_failed", source=str(source.id), error=str(error))
    with work.engine.begin() as connection:
        why = f"its mailboxes could not be listed: {error}"
        cycle.abandon(connection, session.id, RunOutcome.FAILED, why, source_kinds.RUNS_ONCE)
        if isinstance(error, AuthFailed):
            tick.source_is_broken(connection, source.id, f"the server refuses the credentials: {error}")
        outbox.settle(connection, row_id)
